/* SPDX-License-Identifier: Apache-2.0
 * Logging inside the core: one sink per runtime, called by one thread at a time. */
#ifndef ATSI_CORE_LOG_H
#define ATSI_CORE_LOG_H

#include "atsinfer/atsinfer.h"

struct atsi_log; /* [owned by the runtime] */

int atsi_log_open(atsi_log_fn *fn, void *ctx, enum atsi_log_level level, struct atsi_log **out);
void atsi_log_close(struct atsi_log *log); /* NULL is allowed */
/* `log` may be NULL (silent).  Preserves errno.  Messages over 1 KiB are cut.  [any thread] */
void atsi_log(struct atsi_log *log, enum atsi_log_level level, const char *who, const char *fmt,
              ...) ATSI_PRINTF(4, 5);
void atsi_logv(struct atsi_log *log, enum atsi_log_level level, const char *who, const char *fmt,
               va_list ap) ATSI_PRINTF(4, 0);

#endif
