/* SPDX-License-Identifier: Apache-2.0
 *
 * Status codes and error text shared by the core, its plugins and applications.
 *
 * A function that can fail returns `int`: 0 is success, a negative ATSI_E* says what the program
 * should do about the failure, and struct atsi_err says in words what happened.  Positive values
 * appear only where a count or a yes/no answer is documented.
 */
#ifndef ATSINFER_STATUS_H
#define ATSINFER_STATUS_H

#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>

#ifdef __cplusplus
extern "C" {
#endif

#if defined(__GNUC__)
#define ATSI_EXPORT __attribute__((visibility("default")))
#define ATSI_PRINTF(fmt_index, first) __attribute__((format(printf, fmt_index, first)))
#else
#define ATSI_EXPORT
#define ATSI_PRINTF(fmt_index, first)
#endif

enum atsi_status {
    ATSI_OK = 0,
    ATSI_EINVAL = -1,  /* an argument breaks the documented contract */
    ATSI_ENOMEM = -2,  /* memory could not be had */
    ATSI_EIO = -3,     /* the operating system refused a read, write or map */
    ATSI_EFORMAT = -4, /* a file's contents are malformed */
    ATSI_ENOTSUP = -5, /* well-formed, but nothing here can do it */
    ATSI_ENODEV = -6,  /* no such device, or not usable on this machine */
    ATSI_ENOFIT = -7,  /* does not fit the memory there is */
    ATSI_ECONF = -8,   /* a setting or command-line value is wrong */
    ATSI_ENOENT = -9,  /* no such file, key, plugin or tensor */
    ATSI_EABI = -10,   /* plugin and core speak different interface versions */
    ATSI_EINTR = -11,  /* stopped by the caller's cancel flag */
    ATSI_EFAIL = -12,  /* a self-test or numeric check failed */
    ATSI_ELOST = -13   /* the device stopped working: close all of it, go on without */
};

/* Words for a failure.  [caller-owned]  The caller sets struct_size and nothing else. */
struct atsi_err {
    uint32_t struct_size;
    char msg[508]; /* NUL-terminated, no newline; written only when the call fails */
};

#define ATSI_ERR_INIT                                                                              \
    {                                                                                              \
        (uint32_t)sizeof(struct atsi_err),                                                         \
        {                                                                                          \
            0                                                                                      \
        }                                                                                          \
    }

/* Formats `fmt` into err->msg (when err is not NULL and large enough) and returns `status`, so that
 * `return atsi_fail(err, ATSI_EFORMAT, "...")` is one statement.  [any thread] */
static inline int atsi_fail(struct atsi_err *err, int status, const char *fmt, ...)
    ATSI_PRINTF(3, 4);
static inline int atsi_fail(struct atsi_err *err, int status, const char *fmt, ...)
{
    if (err != NULL && err->struct_size >= sizeof(struct atsi_err)) {
        va_list ap;
        va_start(ap, fmt);
        (void)vsnprintf(err->msg, sizeof err->msg, fmt, ap);
        va_end(ap);
    }
    return status;
}

#ifdef __cplusplus
}
#endif
#endif
