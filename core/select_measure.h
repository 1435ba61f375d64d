/* SPDX-License-Identifier: Apache-2.0
 * How fast a backend is at the two products that dominate: one row (decode) and many (prefill). */
#ifndef ATSI_CORE_SELECT_MEASURE_H
#define ATSI_CORE_SELECT_MEASURE_H

#include "atsinfer/plugin.h"

/* Nanoseconds of a fixed mix of matrix products, best of a few runs each.  Once it is sure to take
 * more than twice `limit_ns` (0: no limit) measuring stops, and *ns_out is UINT64_MAX. */
int atsi_measure_backend(const struct atsi_host *host, const struct atsi_backend_ops *ops,
                         uint64_t limit_ns, uint64_t *ns_out, struct atsi_err *err);

#endif
