/* SPDX-License-Identifier: Apache-2.0
 *
 * Probes for rounds on real devices (struct atsi_probe of rounds.h): a few products of one row on
 * an idle device, a small copy over an idle channel, against what the table of costs says they
 * take.
 */
#ifndef ATSI_CORE_ROUND_PROBE_H
#define ATSI_CORE_ROUND_PROBE_H

#include "core/round/measure.h"
#include "core/round/rounds.h"

struct atsi_prober;

/* What it takes on each device, at most, but for weights larger than that. */
#define ATSI_PROBE_BYTES ((size_t)16 << 20)

/* c: [borrowed until close]  r is copied; its model and devices
 * stay the caller's. */
int atsi_prober_open(const struct atsi_measure_request *r, const struct atsi_costs *c,
                     struct atsi_prober **out, struct atsi_err *err);
void atsi_prober_close(struct atsi_prober *p); /* NULL is allowed; waits for what is under way */
/* [borrowed until close] */
const struct atsi_probe *atsi_prober_hook(const struct atsi_prober *p);

#endif
