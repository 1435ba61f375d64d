/* SPDX-License-Identifier: Apache-2.0
 *
 * A small benchmark of a CPU backend: matrix products of the two most common weight types with 1
 * and with 16 rows of activations, in the layout a model would have with it.  The weights (2 x 1024
 * rows of 1024) stay in cache, so that kernels are compared and not memory; a few milliseconds for
 * a vectorised backend.
 */
#include "core/select_measure.h"

#include "panel/pack.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define DIM 1024u
#define ROWS 16u
#define REPEATS 5

struct bench {
    const struct atsi_backend_ops *ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    struct atsi_buf *weights, *x, *y;
    bool panels; /* the layout of the weights */
};

/* Any bytes are valid codes; only the f16 scales must be finite. */
static void fill_weights(uint32_t type, unsigned char *data)
{
    size_t bytes = (size_t)DIM * atsi_row_bytes(type, DIM);
    uint32_t state = 12345;
    for (size_t i = 0; i < bytes; i++) {
        state = state * 1664525u + 1013904223u;
        data[i] = (unsigned char)(state >> 24);
    }
    if (type == ATSI_TYPE_Q4_K) {
        struct atsi_block_q4_k *b = (struct atsi_block_q4_k *)(void *)data;
        for (size_t i = 0; i < bytes / sizeof *b; i++)
            b[i].d = b[i].dmin = 0x1400; /* 2^-10 */
    } else {
        struct atsi_block_q8_0 *b = (struct atsi_block_q8_0 *)(void *)data;
        for (size_t i = 0; i < bytes / sizeof *b; i++)
            b[i].d = 0x1400;
    }
}

/* The weights of a type, in the bench's layout. */
static int load_weights(struct bench *b, uint32_t type, struct atsi_err *err)
{
    const uint64_t row_bytes = atsi_row_bytes(type, DIM);
    unsigned char *to = b->ops->buf_ptr(b->weights), *rows;
    if (!b->panels) {
        fill_weights(type, to);
        return ATSI_OK;
    }
    rows = malloc(DIM * row_bytes);
    if (rows == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory measuring a backend");
    fill_weights(type, rows);
    atsi_panel_pack(type, DIM, rows, row_bytes, DIM / ATSI_PANEL_ROWS, to);
    free(rows);
    return ATSI_OK;
}

static int open_bench(struct bench *b, const struct atsi_host *host, struct atsi_err *err)
{
    struct atsi_props props = {.struct_size = sizeof props};
    float *x;
    int rc = b->ops->open(host, 0, &b->be, err);
    if (rc == ATSI_OK)
        rc = b->ops->props(b->be, &props);
    if (rc == ATSI_OK)
        rc = b->ops->queue_open(b->be, &b->queue, err);
    if (rc == ATSI_OK) /* room for the larger type */
        rc = b->ops->buf_alloc(b->be, ATSI_MEM_DEVICE, DIM * atsi_row_bytes(ATSI_TYPE_Q8_0, DIM),
                               &b->weights, err);
    if (rc == ATSI_OK)
        rc = b->ops->buf_alloc(b->be, ATSI_MEM_DEVICE, sizeof(float) * ROWS * DIM, &b->x, err);
    if (rc == ATSI_OK)
        rc = b->ops->buf_alloc(b->be, ATSI_MEM_DEVICE, sizeof(float) * ROWS * DIM, &b->y, err);
    if (rc != ATSI_OK)
        return rc;
    b->panels = props.prefers_panels != 0;
    x = b->ops->buf_ptr(b->x);
    for (uint32_t i = 0; i < ROWS * DIM; i++)
        x[i] = (float)(int)(i * 2654435761u >> 20) / 2048.0F - 1.0F;
    return ATSI_OK;
}

static void close_bench(struct bench *b)
{
    if (b->be == NULL)
        return;
    if (b->weights != NULL)
        b->ops->buf_free(b->be, b->weights);
    if (b->x != NULL)
        b->ops->buf_free(b->be, b->x);
    if (b->y != NULL)
        b->ops->buf_free(b->be, b->y);
    b->ops->queue_close(b->queue);
    b->ops->close(b->be);
}

static struct atsi_tensor activation(struct bench *b, struct atsi_buf *buf, uint32_t rows)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = ATSI_TYPE_F32,
                                .n_dims = 2,
                                .ne = {DIM, rows, 1, 1},
                                .row_bytes = sizeof(float) * DIM,
                                .data = b->ops->buf_ptr(buf),
                                .name = "measure"};
}

/* Best time of one product, adding to *ns. */
static int time_product(struct bench *b, const struct atsi_host *host, uint32_t type, uint32_t rows,
                        uint64_t limit_ns, uint64_t *ns, struct atsi_err *err)
{
    struct atsi_tensor x = activation(b, b->x, rows), y = activation(b, b->y, rows);
    struct atsi_tensor w = {.struct_size = sizeof w,
                            .type = type,
                            .layout = b->panels ? ATSI_LAYOUT_PANELS : ATSI_LAYOUT_ROWS,
                            .n_dims = 2,
                            .ne = {DIM, DIM, 1, 1},
                            .row_bytes = atsi_row_bytes(type, DIM),
                            .data = b->ops->buf_ptr(b->weights),
                            .name = "measure.weight"};
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_MATMUL,
                         .n_rows = rows,
                         .src = {&x},
                         .weight = {&w},
                         .dst = {&y}};
    const struct atsi_op *ops[] = {&op};
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = 1, .ops = ops};
    uint64_t best = UINT64_MAX;
    for (int r = 0; r < REPEATS; r++) {
        uint64_t start = host->now_ns(host->ctx), ns_here;
        int rc = b->ops->run(b->queue, &split, err);
        if (rc != ATSI_OK)
            return rc;
        ns_here = host->now_ns(host->ctx) - start;
        best = ns_here < best ? ns_here : best;
        if (limit_ns != 0 && r >= 1 && *ns + best > 2 * limit_ns) {
            *ns = UINT64_MAX; /* the first run warms up; a second this slow settles it */
            return ATSI_OK;
        }
    }
    *ns += best;
    return ATSI_OK;
}

int atsi_measure_backend(const struct atsi_host *host, const struct atsi_backend_ops *ops,
                         uint64_t limit_ns, uint64_t *ns_out, struct atsi_err *err)
{
    static const uint32_t types[] = {ATSI_TYPE_Q4_K, ATSI_TYPE_Q8_0};
    struct bench b = {.ops = ops};
    int rc = open_bench(&b, host, err);
    *ns_out = 0;
    for (int t = 0; t < 2 && rc == ATSI_OK; t++) {
        rc = load_weights(&b, types[t], err);
        for (uint32_t rows = 1; rows <= ROWS && rc == ATSI_OK; rows *= ROWS) {
            if (*ns_out == UINT64_MAX)
                break;
            rc = time_product(&b, host, types[t], rows, limit_ns, ns_out, err);
        }
    }
    close_bench(&b);
    return rc;
}
