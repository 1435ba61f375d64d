/* SPDX-License-Identifier: Apache-2.0
 *
 * Does a policy keep what policy.h asks of it, and how good is it?  Every check runs in a child
 * process, so that a policy that crashes or never answers costs that check alone.
 * docs/write-a-policy.md describes the checks.
 */
#ifndef ATSINFER_CONFORM_H
#define ATSINFER_CONFORM_H

#include "atsinfer/atsinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

struct atsi_conform_params {
    uint32_t struct_size;
    uint32_t patience_ms;   /* a call that is silent for so long never returns; 0: 20000 */
    const char *policy;     /* a policy's name */
    uint64_t time_limit_ns; /* of one schedule; 0: policy.time_limit of the configuration */
    uint32_t quick;         /* 1: small problems alone */
    uint32_t reserved;
};

/* One round on one model: the policy's against policy_dp's `backlog`, which is Algorithm 1 and the
 * scheduler of docs/scheduling.md.  This struct never grows. */
struct atsi_conform_row {
    char label[96];
    uint64_t decode_ns, prefill_ns;
    uint64_t reference_decode_ns, reference_prefill_ns;
};

struct atsi_conform_check {
    uint32_t struct_size;
    uint32_t ok;
    const char *name;    /* one word */
    const char *promise; /* what is asked of policies, a sentence */
    const char *text;    /* what was found, with item and numbers when it is not ok */
    uint32_t n_cases, n_rows;
    const struct atsi_conform_row *rows; /* of the check "regret" */
};

/* Calls report() per check, in order; what it is given is [borrowed for the call].  *failed_out:
 * checks that are not ok.  ATSI_ENOENT: no such policy. */
ATSI_EXPORT int atsi_conform(struct atsi_runtime *rt, const struct atsi_conform_params *p,
                             void (*report)(void *ctx, const struct atsi_conform_check *c),
                             void *ctx, uint32_t *failed_out, struct atsi_err *err);

#ifdef __cplusplus
}
#endif
#endif
