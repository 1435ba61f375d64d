/* SPDX-License-Identifier: Apache-2.0
 * Load scripts: lines "t_ns cpu gpu pcie", slowdown factors in force from that time on. */
#ifndef SIM_LOAD_H
#define SIM_LOAD_H

#include "atsinfer/status.h"

struct sim_script;

/* Blank lines and lines that begin with # are skipped; times ascend; factors are 0.01..1000.
 * ATSI_ENOENT, ATSI_EFORMAT "FILE:LINE: ...".  [owned by caller] */
int sim_script_read(const char *path, struct sim_script **out, struct atsi_err *err);
void sim_script_free(struct sim_script *s); /* NULL is allowed */
/* Factor of column `what` (enum sim_load) at a time; 1 before the first line. */
double sim_script_at(const struct sim_script *s, double now_ns, int what);
/* The next time after `now_ns` at which a factor changes; INFINITY: never again. */
double sim_script_next(const struct sim_script *s, double now_ns);

#endif
