/* SPDX-License-Identifier: Apache-2.0
 *
 * Words for messages.  Bytes from files reach a terminal or a log only through gguf_show(). */
#include "text.h"

#include <stdarg.h>
#include <stdio.h>
#include <string.h>

#include "atsinfer/loader.h"

static bool is_printable(unsigned char c)
{
    return c >= 0x20 && c < 0x7f;
}

/* Appends one byte, escaped when `raw` is false; returns the new length, or 0 when it does not fit
 * in front of a "..." and the NUL. */
static size_t append(char *buf, size_t size, size_t at, unsigned char c, bool raw)
{
    static const char hex[] = "0123456789abcdef";
    size_t n = raw ? 1 : 4;
    if (at + n + sizeof "..." > size)
        return 0;
    if (raw) {
        buf[at] = (char)c;
    } else {
        buf[at] = '\\';
        buf[at + 1] = 'x';
        buf[at + 2] = hex[c >> 4];
        buf[at + 3] = hex[c & 15];
    }
    return at + n;
}

const char *gguf_show(const void *ptr, uint64_t len, char buf[GGUF_SHOW])
{
    const unsigned char *p = ptr;
    size_t at = 0;
    for (uint64_t i = 0; i < len; i++) {
        size_t next = append(buf, GGUF_SHOW, at, p[i], is_printable(p[i]) && p[i] != '\\');
        if (next == 0) {
            memcpy(buf + at, "...", sizeof "...");
            return buf;
        }
        at = next;
    }
    buf[at] = '\0';
    return buf;
}

const char *gguf_show_path(const char *path, char buf[GGUF_SHOW_PATH])
{
    size_t len = strlen(path), at = 0, room = GGUF_SHOW_PATH - 8;
    if (len > room) { /* the end of a path tells more than its beginning */
        path += len - room;
        memcpy(buf, "...", 3);
        at = 3;
    }
    for (; *path != '\0'; path++) {
        unsigned char c = (unsigned char)*path;
        size_t next = append(buf, GGUF_SHOW_PATH, at, c, c >= 0x20 && c != 0x7f);
        if (next == 0)
            break;
        at = next;
    }
    buf[at] = '\0';
    return buf;
}

bool gguf_is_printable(const void *ptr, uint64_t len, uint64_t *bad_out)
{
    const unsigned char *p = ptr;
    for (uint64_t i = 0; i < len; i++) {
        if (!is_printable(p[i])) {
            *bad_out = i;
            return false;
        }
    }
    return true;
}

int gguf_context(struct atsi_err *err, int status, const char *fmt, ...)
{
    char head[sizeof err->msg];
    va_list ap;
    size_t n, tail;
    if (err == NULL || err->struct_size < sizeof *err)
        return status;
    va_start(ap, fmt);
    (void)vsnprintf(head, sizeof head - 2, fmt, ap);
    va_end(ap);
    n = strlen(head);
    memcpy(head + n, ": ", 3);
    n += 2;
    tail = strlen(err->msg);
    if (tail > sizeof err->msg - 1 - n)
        tail = sizeof err->msg - 1 - n;
    memmove(err->msg + n, err->msg, tail);
    memcpy(err->msg, head, n);
    err->msg[n + tail] = '\0';
    return status;
}

static const struct {
    const char *name;
    uint32_t bytes;
} value_types[] = {
    [ATSI_META_U8] = {"u8", 1},         [ATSI_META_I8] = {"i8", 1},
    [ATSI_META_U16] = {"u16", 2},       [ATSI_META_I16] = {"i16", 2},
    [ATSI_META_U32] = {"u32", 4},       [ATSI_META_I32] = {"i32", 4},
    [ATSI_META_F32] = {"f32", 4},       [ATSI_META_BOOL] = {"bool", 1},
    [ATSI_META_STRING] = {"string", 0}, [ATSI_META_ARRAY] = {"array", 0},
    [ATSI_META_U64] = {"u64", 8},       [ATSI_META_I64] = {"i64", 8},
    [ATSI_META_F64] = {"f64", 8},
};

const char *gguf_value_type_name(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].name : NULL;
}

uint32_t gguf_value_type_bytes(uint32_t type)
{
    return type < sizeof value_types / sizeof value_types[0] ? value_types[type].bytes : 0;
}
