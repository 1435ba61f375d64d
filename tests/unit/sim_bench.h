/* SPDX-License-Identifier: Apache-2.0
 * A small machine and model on the simulated devices: a question, work and open devices. */
#ifndef ATSI_TESTS_SIM_BENCH_H
#define ATSI_TESTS_SIM_BENCH_H

#include "core/round/model_source.h"

struct sim_bench {
    struct atsi_host host;
    struct atsi_machine machine;
    struct atsi_items *items;
    struct atsi_question *q;
    struct atsi_model_source *source[2];
    struct atsi_exec_devices d;
    uint64_t seed;
};

extern const char sim_bench_dense[], sim_bench_moe[]; /* shapes */

#define SIM_BENCH_VRAM ((uint64_t)500 << 20)
extern uint64_t sim_bench_vram;    /* of weights, caches and slots */
extern const char *sim_bench_load; /* a load script; "": none */

/* Inside a scratch folder. */
void sim_bench_open(struct sim_bench *b, const char *shape, bool contention);
void sim_bench_close(struct sim_bench *b);

#endif
