/* SPDX-License-Identifier: Apache-2.0
 *
 * Qwen3-14B on the simulated laptop, for tests of what a governor brings: its questions under
 * loads, what the governor would read, and what another placement costs. */
#ifndef GOVERN_BENCH_H
#define GOVERN_BENCH_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "core/govern/decide.h"
#include "core/round/sim_run.h"

#define GB_SECOND UINT64_C(1000000000)
#define GB_PERIOD (GB_SECOND / 2) /* power.watch */

enum { GB_ITEMS = 1024 }; /* at most */

struct gb_load {
    double cpu, gpu; /* factors on times */
};

extern const struct atsi_sim_params gb_base;
extern struct atsi_sim_run gb_sim;
extern struct atsi_err gb_err;

/* Machine, items, policies and devices; a setting more ("key=value") or NULL.  0 is good. */
int gb_open(const char *setting);
void gb_close(void);
/* Fails the test, with gb_err, unless rc is ATSI_OK. */
void gb_need(int rc);

struct atsi_question *gb_question(struct gb_load l);
/* What a governor reads: within 6 % of what is so. */
struct atsi_sense gb_sense(uint64_t *seed, struct gb_load l);
/* Weights that another placement brings cross the link first. */
double gb_reload_seconds(const int32_t *before, const int32_t *after);

#endif
