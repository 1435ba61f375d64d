/* SPDX-License-Identifier: Apache-2.0
 * Topology through hwloc: cores, kinds, caches, NUMA, affinity and cgroup limits. */
#ifndef ATSI_CORE_TOPO_H
#define ATSI_CORE_TOPO_H

#include "atsinfer/atsinfer.h"

/* source: NULL or "" = this machine; "FILE.xml" = recorded hwloc XML; else a synthetic description
 * ("pack:1 core:4 pu:2").  [owned by caller: atsi_topo_close]  ATSI_EFORMAT, ATSI_EIO. */
int atsi_topo_open(const char *source, struct atsi_topo **out, struct atsi_err *err);
void atsi_topo_close(struct atsi_topo *t); /* NULL is allowed */

/* Chooses the CPUs workers run on.
 *   cpus: "" or a list "0-3,8" (OS indices; ATSI_ECONF when one is not usable);
 *   cores: "p" (one CPU per performance core) or "all" (one per core of any kind);
 *   threads: 0 = one per chosen core, leaving none on a busy machine to itself; else exactly that
 *   many, reusing CPUs of the same cores only when there are not enough.
 * Writes OS indices to out[max], returns their number or ATSI_E*. */
int atsi_topo_pick(const struct atsi_topo *t, const char *cpus, const char *cores, uint32_t threads,
                   uint32_t *out, uint32_t max, struct atsi_err *err);

/* What each of the workers on cpus[n] (OS indices; one CPU may be there more than once) has of its
 * cache of `level` (1: data, 2) while all work: the smallest share.  0: not known. */
uint64_t atsi_topo_share(const struct atsi_topo *t, const uint32_t *cpus, uint32_t n,
                         uint32_t level);

#endif
