/* SPDX-License-Identifier: Apache-2.0
 *
 * The tile instructions of plugins/cpu_amx/tile_ops.h in plain C, for CPUs without tiles: what each
 * does is the pseudo code of the Intel SDM, volume 2.  What would raise #UD or #GP traps here, too.
 */
#ifndef AMX_EMULATED_H
#define AMX_EMULATED_H

#include <string.h>

struct amx_state {
    int configured;
    struct amx_config c;
    unsigned char tile[8][16][64];
};

static _Thread_local struct amx_state amx;

static inline void amx_need(int fine)
{
    if (!fine)
        __builtin_trap();
}

static inline void amx_configure(const struct amx_config *c)
{
    amx_need(c->palette == 1 && c->start_row == 0);
    for (int t = 0; t < 16; t++)
        amx_need(t < 8 ? c->rows[t] <= 16 && c->row_bytes[t] <= 64
                       : c->rows[t] == 0 && c->row_bytes[t] == 0);
    memset(&amx, 0, sizeof amx);
    amx.c = *c;
    amx.configured = 1;
}

static inline void amx_release(void)
{
    amx.configured = 0;
}

static inline void amx_check(int t)
{
    amx_need(amx.configured && t >= 0 && t < 8 && amx.c.rows[t] > 0 && amx.c.row_bytes[t] > 0);
}

static inline void amx_zero(int t)
{
    amx_check(t);
    memset(amx.tile[t], 0, sizeof amx.tile[t]);
}

static inline void amx_load(int t, const void *from, size_t stride)
{
    amx_zero(t);
    for (size_t r = 0; r < amx.c.rows[t]; r++)
        memcpy(amx.tile[t][r], (const unsigned char *)from + r * stride, amx.c.row_bytes[t]);
}

static inline void amx_store(int t, void *to, size_t stride)
{
    amx_check(t);
    for (size_t r = 0; r < amx.c.rows[t]; r++)
        memcpy((unsigned char *)to + r * stride, amx.tile[t][r], amx.c.row_bytes[t]);
}

/* TDPBSSD */
static inline void amx_dot(int c, int a, int b)
{
    amx_check(a);
    amx_check(b);
    amx_check(c);
    amx_need(a != b && a != c && b != c);
    amx_need(amx.c.rows[a] == amx.c.rows[c] && amx.c.row_bytes[b] == amx.c.row_bytes[c] &&
             amx.c.row_bytes[a] == 4 * amx.c.rows[b]);
    for (int m = 0; m < amx.c.rows[c]; m++)
        for (int k = 0; k < amx.c.rows[b]; k++)
            for (int n = 0; n < amx.c.row_bytes[c] / 4; n++) {
                int32_t sum;
                memcpy(&sum, &amx.tile[c][m][4 * n], sizeof sum);
                for (int i = 0; i < 4; i++)
                    sum += (int8_t)amx.tile[a][m][4 * k + i] * (int8_t)amx.tile[b][k][4 * n + i];
                memcpy(&amx.tile[c][m][4 * n], &sum, sizeof sum);
            }
}

#define AMX_CONFIGURE(config) amx_configure(config)
#define AMX_RELEASE() amx_release()
#define AMX_ZERO(tile) amx_zero(tile)
#define AMX_LOAD(tile, from, stride) amx_load(tile, from, stride)
#define AMX_STORE(tile, to, stride) amx_store(tile, to, stride)
#define AMX_DOT(c, a, b) amx_dot(c, a, b)

#endif
