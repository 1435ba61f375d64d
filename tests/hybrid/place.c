/* SPDX-License-Identifier: Apache-2.0
 * Opening and closing what tests of logits run on. */
#include "tests/hybrid/place.h"

const char *const place_on[] = {"memory.vram=100%m", "policy.name=policy_static", NULL};
const char *const place_off[] = {"memory.vram=100%m", "policy.name=policy_static", "exec.pick=off",
                                 NULL};

struct place place_open(const char *const *settings, const char *path, uint32_t n_ctx,
                        uint32_t chunk)
{
    struct place p = {.rt = settings != NULL ? hr_runtime(settings) : hr_cpu()};
    p.m = hr_open(p.rt, path);
    p.s = hr_session(p.m, n_ctx, chunk);
    return p;
}

void place_close(struct place *p)
{
    atsi_session_close(p->s);
    atsi_model_close(p->m);
    atsi_runtime_close(p->rt);
}

const char *place_long_model(void)
{
    struct am_config c = am_tiny("llama");
    c.n_vocab = PLACE_LONG;
    return hr_model_of(&c, "long");
}

uint64_t place_result_bytes(const struct place *p)
{
    struct atsi_accel_stats stats = {.struct_size = sizeof stats};
    atsi_session_accel_stats(p->s, &stats);
    return stats.result_bytes;
}
