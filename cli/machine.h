/* SPDX-License-Identifier: Apache-2.0
 * Words about the machine that `topology` and `doctor` share. */
#ifndef ATSI_CLI_MACHINE_H
#define ATSI_CLI_MACHINE_H

#include "cli/cli.h"

#define MACHINE_MAX_WORKERS 512
#define MACHINE_TEXT 1024

/* Text made from formatted pieces; what does not fit is cut. */
struct machine_text {
    char s[MACHINE_TEXT];
    size_t len;
};
void machine_add(struct machine_text *t, const char *fmt, ...) ATSI_PRINTF(2, 3);

/* The entry of a known key; all texts "" for an unknown one. */
struct atsi_conf_entry machine_conf(const struct atsi_runtime *rt, const char *key);

/* Capabilities that this CPU and OS have and the settings took away. */
uint64_t machine_masked(const struct atsi_runtime *rt);
/* Names of `caps`, or "none". */
void machine_add_caps(struct machine_text *t, uint64_t caps);

/* CPU numbers as ranges: "0-3,8". */
void machine_add_cpus(struct machine_text *t, const uint32_t *cpus, uint32_t n);
/* CPUs of a kind (UINT32_MAX: of all), usable ones only when asked. */
uint32_t machine_cpus_of(const struct atsi_topo *topo, uint32_t kind, bool usable_only,
                         uint32_t *out, uint32_t max);
uint32_t machine_cores_of(const struct atsi_topo *topo, uint32_t kind);
/* "performance", "efficiency", "middle" for one of several kinds. */
const char *machine_kind_name(const struct atsi_topo *topo, uint32_t kind);

/* "CPU 0, 2, 4" or "not pinned". */
void machine_add_workers(struct machine_text *t, const struct atsi_runtime *rt);
/* Which settings and limits led to these workers, one sentence. */
void machine_add_why(struct machine_text *t, const struct atsi_runtime *rt);

#endif
