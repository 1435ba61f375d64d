/* SPDX-License-Identifier: Apache-2.0
 * Memory and CPU time this process may use: /proc/meminfo and the limits of its control groups. */
#ifndef ATSI_CORE_CGROUP_H
#define ATSI_CORE_CGROUP_H

#include "atsinfer/atsinfer.h"

struct atsi_limits {
    double cgroup_cpus;           /* CPU time limit in CPUs; 0: none */
    uint64_t mem_total_bytes;     /* of the machine; 0: not known */
    uint64_t mem_available_bytes; /* without swapping, inside all limits; 0: not known */
    uint64_t cgroup_mem_bytes;    /* lowest memory limit of a control group; UINT64_MAX: none */
    uint64_t huge_page_bytes;     /* 0: not known */
};

/* Reads below `root` ("" for this machine; a folder with proc/ and sys/ in tests).  What cannot be
 * read counts as no limit.  [any thread] */
void atsi_limits_read(const char *root, struct atsi_limits *out);

#endif
