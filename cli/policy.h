/* SPDX-License-Identifier: Apache-2.0
 *
 * What the subcommands of `atsinfer policy` share: scheduling instances read from vector files.
 */
#ifndef ATSI_CLI_POLICY_H
#define ATSI_CLI_POLICY_H

#include <jansson.h>

#include "atsinfer/policy.h"
#include "cli/cli.h"
#include "sched/chain.h"

/* One problem of a file.  [owned by struct policy_file] */
struct policy_instance {
    const char *name; /* "" when it has none */
    struct sched_chain chain;
    const json_t *expect; /* NULL when there is none */
    struct sched_op *op;  /* what the chain borrows */
    uint8_t *b;
    uint32_t *depth;
};

struct policy_file {
    const char *path;
    json_t *root;
    struct policy_instance *item; /* [n] */
    size_t n;
};

/* Reads a JSON array of {"input": ..., "expect": ...}; every chain is checked.  Prints what is
 * wrong (file, entry, key, index) and returns an exit code. */
int policy_file_open(const char *path, struct policy_file *out);
void policy_file_close(struct policy_file *f);

/* JSON document at `path`; prints why not.  An array is required. */
int policy_load_array(const char *path, json_t **out);
/* A plan as text, "0110": one character per operator.  Prints and fails when it is not, or is no
 * legal plan of the instance. */
int policy_read_plan(const struct policy_file *f, size_t item, const char *plan, const char *text,
                     uint8_t *rb_out);
/* The other way; *text_out has room for n + 1 characters. */
void policy_write_bits(const uint8_t *side, uint32_t n, char *text_out);

/* Opens a runtime with the policy that spec names: NAME[:MODE], or the file of a plugin.  Prints
 * why not and returns an exit code; *rt is to be closed either way. */
int policy_open(const char *spec, struct atsi_runtime **rt, char name_out[64]);

/* What a policy says about an instance. */
struct policy_answer {
    uint8_t *b, *rb; /* [n] out: where weights live, where operators run */
    double fluid;    /* the round, with contention */
    double steady;   /* the third of three, which policies plan for */
    uint64_t ns;     /* time the policy took, conversions included */
    uint64_t evals;
};
/* Asks for a round of decode on the instance's own placement or, if `place`, on the policy's within
 * the budget.  Statuses of the policy; ATSI_EINVAL with operator and number for an illegal answer.
 */
int policy_ask(const struct atsi_policy_ops *ops, const struct sched_chain *instance, bool place,
               struct policy_answer *out, struct atsi_err *err);

/* What `atsinfer policy new` writes: the files of examples/policy_greedy, embedded by the build. */
extern const char policy_template_c[], policy_template_makefile[], policy_template_readme[];

extern const struct cli_command policy_cmd_solve, policy_cmd_latency, policy_cmd_resched,
    policy_cmd_new, policy_cmd_test;

#endif
