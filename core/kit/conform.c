/* SPDX-License-Identifier: Apache-2.0
 * The checks one after the other. */
#include "core/kit/kit.h"

#include "core/runtime.h"

#include <errno.h>
#include <string.h>
#include <sys/mman.h>

const struct atsi_kit_check atsi_kit_checks[] = {
    {"place", "placements name devices that exist, keep to budgets and rules",
     atsi_kit_check_place},
    {"schedule", "plans are legal: what may move, slots that exist, an order that cannot block",
     atsi_kit_check_schedule},
    {"keep", "a plan is kept only where one is in force", atsi_kit_check_keep},
    {"memory", "a policy writes to what is lent for that and to nothing else",
     atsi_kit_check_memory},
    {"repeat", "the same question gets the same answer", atsi_kit_check_repeat},
    {"state", "what is remembered lies in the lent state alone", atsi_kit_check_state},
    {"threads", "any number of threads may ask at a time", atsi_kit_check_threads},
    {"experts", "caches of experts: swaps are legal, and the same for the same question",
     atsi_kit_check_experts},
    {"time", "an answer takes less than policy.time_limit", atsi_kit_check_time},
    {"optimum", "how far from the best of all plans, on small problems", atsi_kit_check_optimum},
    {"regret", "how far from policy_dp, on realistic problems", atsi_kit_check_regret},
};
const uint32_t atsi_kit_n_checks = sizeof atsi_kit_checks / sizeof atsi_kit_checks[0];

static int run_check(struct atsi_kit_run *r, const struct atsi_kit_check *k, uint32_t patience_ms,
                     struct atsi_conform_check *out, struct atsi_err *err)
{
    int rc = atsi_kit_child_run(r, k->run, patience_ms, err);
    const struct atsi_kit_note *note = r->note;
    *out = (struct atsi_conform_check){.struct_size = sizeof *out,
                                       .ok = note->ok == 1,
                                       .name = k->name,
                                       .promise = k->promise,
                                       .text = note->text,
                                       .n_cases = note->n_cases,
                                       .n_rows = note->n_rows <= KIT_ROWS ? note->n_rows : 0,
                                       .rows = note->rows};
    return rc;
}

int atsi_conform(struct atsi_runtime *rt, const struct atsi_conform_params *p,
                 void (*report)(void *ctx, const struct atsi_conform_check *c), void *ctx,
                 uint32_t *failed_out, struct atsi_err *err)
{
    struct atsi_kit_run r = {.limit_ns = p->time_limit_ns, .quick = p->quick != 0};
    int rc = ATSI_OK;
    *failed_out = 0;
    if (p->struct_size < sizeof *p)
        return atsi_fail(err, ATSI_EINVAL,
                         "parameters of a conformance test: %u bytes given, %zu "
                         "needed",
                         p->struct_size, sizeof *p);
    r.ops = atsi_runtime_component(rt, ATSI_KIND_POLICY, p->policy);
    if (r.ops == NULL)
        return atsi_fail(err, ATSI_ENOENT,
                         "there is no policy \"%s\"; `atsinfer plugins` lists them", p->policy);
    if (r.limit_ns == 0)
        r.limit_ns = (uint64_t)atsi_conf_int(rt->conf, "policy.time_limit") * 1000;
    r.note = mmap(NULL, sizeof *r.note, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (r.note == MAP_FAILED)
        return atsi_fail(err, ATSI_ENOMEM, "no memory to share with a child process: %s",
                         strerror(errno));
    for (uint32_t k = 0; k < atsi_kit_n_checks && rc == ATSI_OK; k++) {
        struct atsi_conform_check c;
        rc = run_check(&r, &atsi_kit_checks[k], p->patience_ms != 0 ? p->patience_ms : 20000, &c,
                       err);
        if (rc == ATSI_OK) {
            *failed_out += c.ok == 0;
            report(ctx, &c);
        }
    }
    (void)munmap(r.note, sizeof *r.note);
    return rc;
}
