/* SPDX-License-Identifier: Apache-2.0
 * Logging: formats a message and hands it to the application's sink, one caller at a time. */
#include "core/log.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>

struct atsi_log {
    atsi_log_fn *fn;
    void *ctx;
    enum atsi_log_level level;
    pthread_mutex_t lock;
};

int atsi_log_open(atsi_log_fn *fn, void *ctx, enum atsi_log_level level, struct atsi_log **out)
{
    struct atsi_log *log = calloc(1, sizeof *log);
    *out = NULL;
    if (log == NULL)
        return ATSI_ENOMEM;
    log->fn = fn;
    log->ctx = ctx;
    log->level = level;
    if (pthread_mutex_init(&log->lock, NULL) != 0) {
        free(log);
        return ATSI_ENOMEM;
    }
    *out = log;
    return ATSI_OK;
}

void atsi_log_close(struct atsi_log *log)
{
    if (log == NULL)
        return;
    (void)pthread_mutex_destroy(&log->lock);
    free(log);
}

void atsi_logv(struct atsi_log *log, enum atsi_log_level level, const char *who, const char *fmt,
               va_list ap)
{
    int saved = errno;
    char msg[1024];
    if (log == NULL || log->fn == NULL || level > log->level)
        return;
    (void)vsnprintf(msg, sizeof msg, fmt, ap);
    (void)pthread_mutex_lock(&log->lock);
    log->fn(log->ctx, level, who, msg);
    (void)pthread_mutex_unlock(&log->lock);
    errno = saved;
}

void atsi_log(struct atsi_log *log, enum atsi_log_level level, const char *who, const char *fmt,
              ...)
{
    va_list ap;
    va_start(ap, fmt);
    atsi_logv(log, level, who, fmt, ap);
    va_end(ap);
}
