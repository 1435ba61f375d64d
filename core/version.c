/* SPDX-License-Identifier: Apache-2.0
 * The library's version and the words for its status codes. */
#include "atsinfer/atsinfer.h"

const char *atsi_version(void)
{
    return "0.1.0";
}

const char *atsi_strerror(int status)
{
    switch (status) {
    case ATSI_OK:
        return "success";
    case ATSI_EINVAL:
        return "invalid argument";
    case ATSI_ENOMEM:
        return "out of memory";
    case ATSI_EIO:
        return "input or output error";
    case ATSI_EFORMAT:
        return "malformed file";
    case ATSI_ENOTSUP:
        return "not supported";
    case ATSI_ENODEV:
        return "no usable device";
    case ATSI_ENOFIT:
        return "does not fit";
    case ATSI_ECONF:
        return "configuration error";
    case ATSI_ENOENT:
        return "not found";
    case ATSI_EABI:
        return "incompatible plugin interface";
    case ATSI_EINTR:
        return "interrupted";
    case ATSI_EFAIL:
        return "check failed";
    case ATSI_ELOST:
        return "device lost";
    default:
        return status > 0 ? "success" : "unknown error";
    }
}
