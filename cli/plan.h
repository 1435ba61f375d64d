/* SPDX-License-Identifier: Apache-2.0
 * What the parts of `atsinfer plan` share: a plan and its variations, and how items are named and
 * grouped wherever they are shown. */
#ifndef ATSI_CLI_PLAN_H
#define ATSI_CLI_PLAN_H

#include "atsinfer/plan.h"
#include "cli/cli.h"

#define PLAN_WHAT_IFS 4u /* items of --explain that are tried on the other side */

struct plan_trial {
    bool tried;
    int status;
    struct atsi_plan_times times;
    char why[512]; /* when status is not ATSI_OK */
};

/* Neighbouring items of one layer. */
struct plan_row {
    uint32_t first, n;
    uint32_t like; /* first row that shows the same, this one for the first of its kind */
    uint32_t same; /* of that first one: rows like it, itself included */
};

struct plan_show {
    struct atsi_plan_report *report;
    const struct atsi_plan_summary *sum;
    const char *explain; /* pattern, or NULL */
    uint64_t more_bytes;
    struct plan_trial more;                 /* with more_bytes of VRAM more */
    struct plan_trial other[PLAN_WHAT_IFS]; /* of the first items that match `explain` */
    struct plan_row *rows;
    uint32_t n_rows;
    bool fits;
};

/* ---- plan_words.c */
const char *plan_role(uint32_t role);
const char *plan_reason(uint32_t reason);
const char *plan_limit(uint32_t limit);
/* "resident", "host, promoted in decode", ... */
const char *plan_decision(const struct atsi_plan_item *it);
/* The name without its layer: "blk.7.ffn_up.weight" and "L7.up" to "ffn_up" and "up". */
void plan_short_name(const struct atsi_plan_item *it, char out[64]);
bool plan_explained(const struct plan_show *v, const struct atsi_plan_item *it);
double plan_ms(uint64_t ns);
double plan_mib(uint64_t bytes);
double plan_percent(uint64_t part, uint64_t whole);
/* Fills rows; false: out of memory.  [owned: free(v->rows)] */
bool plan_find_rows(struct plan_show *v);

/* ---- plan_out.c, plan_explain.c, plan_json.c, plan_svg.c; each returns an exit code */
int plan_print(const struct plan_show *v);
int plan_print_no_fit(const struct plan_show *v);
int plan_print_explain(const struct plan_show *v);
int plan_print_json(const struct plan_show *v);
int plan_write_svg(const struct plan_show *v, const char *path);

#endif
