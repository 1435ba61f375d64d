/* SPDX-License-Identifier: Apache-2.0
 * A saved plan as its file holds it. */
#ifndef ATSI_CORE_ROUND_PLAN_FILE_H
#define ATSI_CORE_ROUND_PLAN_FILE_H

#include "core/round/plan_report.h"

#define ATSI_SAVED_VERSION "1"

struct atsi_saved_plan {
    struct atsi_plan_key key;
    uint32_t made_for[3], n;       /* prompt, generated, context; items */
    struct atsi_answer *answer[2]; /* per phase */
};

/* The whole file; *check_out: the check in it.  [owned: free] */
int atsi_plan_text(const struct atsi_saved_plan *s, char **text_out, size_t *n_out,
                   uint64_t *check_out, struct atsi_err *err);

#endif
