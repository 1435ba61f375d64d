/* SPDX-License-Identifier: Apache-2.0
 *
 * Runs models of arch_model.h through the engine, on every CPU backend this machine can use, and
 * compares logits. */
#ifndef ARCH_RUN_H
#define ARCH_RUN_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include "atsinfer/atsinfer.h"
#include "tests/unit/arch_config.h"

/* Group set-up and tear-down: a temporary folder, and a runtime per usable backend. */
int ar_enter(void **state);
int ar_leave(void **state);

enum { AR_MAX_BACKENDS = 3, AR_MAX_IDS = 256 };
extern uint32_t ar_n_backends;
extern struct atsi_runtime *ar_runtimes[AR_MAX_BACKENDS];
extern const char *ar_names[AR_MAX_BACKENDS];

/* Writes the model to the folder and opens it; fails the test when it is refused. */
struct atsi_model *ar_open(uint32_t backend, const struct am *m);

struct ar_how {
    uint32_t n_ctx, chunk, threads; /* 0: 256, 512, 2 */
    uint32_t type_kv;               /* of keys and values; 0: F32 */
};
struct atsi_session *ar_session(struct atsi_model *m, const struct ar_how *how);
struct atsi_session_info ar_info(const struct atsi_session *s);
/* [owned by caller: atsi_session_close()]  Appends n tokens. */
void ar_eval(struct atsi_session *s, const int32_t *ids, uint32_t n);

/* Logits of every position. */
struct ar_rows {
    float *data;
    uint32_t n, n_vocab;
};
/* Ids that look like nothing. */
void ar_ids(int32_t *ids, uint32_t n, uint32_t n_vocab);
/* Checks also that they are finite, far from constant and different from row to row. */
struct ar_rows ar_logits(uint32_t backend, const struct am *m, uint32_t n,
                         const struct ar_how *how);
/* The last row of a fresh session that gets these tokens at once. */
struct ar_rows ar_fresh(struct atsi_model *m, const int32_t *ids, uint32_t n,
                        const struct ar_how *how);
void ar_free(struct ar_rows *r);
double ar_difference(const struct ar_rows *a, const struct ar_rows *b);

/* Both models give the same logits on every backend: to the bit when `within` is 0. */
void ar_same(const struct am *a, const struct am *b, double within, const char *what);
/* They differ by more than `by` on the first backend. */
void ar_differ(const struct am *a, const struct am *b, double by, const char *what);

#endif
