/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs tiny models with and without the test accelerator and compares logits: its kernels are
 * cpu_ref's, so that they are equal to the bit wherever anything is computed.
 *
 * ATSI_TEST_ACCEL names another accelerator, of the plugin ATSI_TEST_PLUGIN; logits may then differ
 * by 0.001, and the best token is the same. */
#ifndef HYBRID_RUN_H
#define HYBRID_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "atsinfer/atsinfer.h"
#include "tests/unit/arch_config.h"

/* Group set-up and tear-down: a temporary folder. */
int hr_enter(void **state);
int hr_leave(void **state);

enum { HR_MAX_IDS = 256 };

/* A runtime with cpu_ref, two threads, the test accelerator, and further settings (NULL-terminated
 * "key=value").  hr_log: what was said since it was opened. */
struct atsi_runtime *hr_runtime(const char *const *settings);
struct atsi_runtime *hr_cpu(void); /* without accelerator */
extern char hr_log[4096];
const char *hr_accel(void); /* its name */

/* Writes the tiny model of a name to a file; its path.  [borrowed until the next call] */
const char *hr_model(const char *name);
/* The same of any configuration. */
const char *hr_model_of(const struct am_config *c, const char *name);
struct atsi_model *hr_open(struct atsi_runtime *rt, const char *path);
struct atsi_session *hr_session(struct atsi_model *m, uint32_t n_ctx, uint32_t chunk);
struct atsi_session_info hr_info(const struct atsi_session *s);

/* Logits of rows; ids that look like nothing. */
struct hr_rows {
    float *data;
    uint32_t n, n_vocab;
};
void hr_ids(int32_t *ids, uint32_t n, uint32_t n_vocab);
/* Appends n tokens and takes the logits of all of them, or of the last one. */
struct hr_rows hr_eval(struct atsi_session *s, const int32_t *ids, uint32_t n, bool all);
void hr_free(struct hr_rows *r);
/* Fails the test, saying which row, unless they are equal as above. */
void hr_same(const struct hr_rows *want, const struct hr_rows *have, const char *what);

#endif
