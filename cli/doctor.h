/* SPDX-License-Identifier: Apache-2.0
 * Findings of `atsinfer doctor` and the checks that make them. */
#ifndef ATSI_CLI_DOCTOR_H
#define ATSI_CLI_DOCTOR_H

#include "cli/machine.h"

enum finding_level { FINDING_OK, FINDING_NOTE, FINDING_PROBLEM };

struct finding {
    enum finding_level level;
    const char *topic;        /* static */
    struct machine_text text; /* what was found */
    struct machine_text todo; /* what to do about it; "" when nothing */
};

#define DOCTOR_MAX 96

struct doctor {
    struct atsi_runtime *rt; /* [borrowed] */
    uint32_t n;
    int exit_code; /* of the first problem */
    struct finding findings[DOCTOR_MAX];
};

/* The next finding to be written; beyond DOCTOR_MAX the last one is written again. */
struct finding *doctor_add(struct doctor *d, enum finding_level level, const char *topic);
/* A problem that ends with `code`. */
struct finding *doctor_problem(struct doctor *d, int code, const char *topic);

void doctor_check_cpu(struct doctor *d);
void doctor_check_plugins(struct doctor *d);
void doctor_check_config(struct doctor *d);
void doctor_check_system(struct doctor *d);
void doctor_check_model(struct doctor *d);

#endif
