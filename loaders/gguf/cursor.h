/* SPDX-License-Identifier: Apache-2.0
 *
 * The bounds-checked reader of the metadata part.
 *
 * It alone compares lengths and counts of the file with the bytes that are there; nothing behind
 * it has to.  Positions are byte offsets from the start of the file: the bytes themselves may move
 * while the buffer grows, so callers keep offsets and ask for pointers when all is read. */
#ifndef GGUF_CURSOR_H
#define GGUF_CURSOR_H

#include <stdint.h>

#include "atsinfer/status.h"

/* More than this much metadata is refused.  The largest real files have about 40 MiB (a vocabulary
 * of 260,000 tokens with merges and a copy of tokenizer.json). */
#define GGUF_HEAD_MAX_BYTES (UINT64_C(256) << 20)

struct gguf_cursor {
    int fd;             /* -1: all bytes are in memory */
    uint8_t *owned;     /* buffer of an fd cursor, else NULL */
    const uint8_t *mem; /* bytes 0 .. have-1 of the file */
    uint64_t have, cap; /* have <= cap, have <= size */
    uint64_t size;      /* of the file */
    uint64_t pos;       /* next byte; pos <= have */
};

/* Reads from `fd` (by pread, [borrowed]) a file of `size` bytes. */
void gguf_cursor_open_fd(struct gguf_cursor *c, int fd, uint64_t size);
/* Reads from memory [borrowed]. */
void gguf_cursor_open_mem(struct gguf_cursor *c, const void *mem, uint64_t size);
void gguf_cursor_close(struct gguf_cursor *c);

/* Bytes from the position to the end of the file. */
uint64_t gguf_cursor_remaining(const struct gguf_cursor *c);
/* Makes the next n bytes available without moving.  ATSI_EFORMAT: the file ends before, or the
 * metadata grows beyond GGUF_HEAD_MAX_BYTES; ATSI_EIO: the read failed; ATSI_ENOMEM. */
int gguf_cursor_need(struct gguf_cursor *c, uint64_t n, struct atsi_err *err);
int gguf_cursor_skip(struct gguf_cursor *c, uint64_t n, struct atsi_err *err);
int gguf_cursor_u32(struct gguf_cursor *c, uint32_t *out, struct atsi_err *err);
int gguf_cursor_u64(struct gguf_cursor *c, uint64_t *out, struct atsi_err *err);
/* A u64 length and that many bytes, at *off_out .. *off_out + *len_out - 1.  At most max_bytes. */
int gguf_cursor_string(struct gguf_cursor *c, uint64_t max_bytes, uint64_t *off_out,
                       uint64_t *len_out, struct atsi_err *err);
/* A count of things of which each takes at least min_bytes: ATSI_EFORMAT when they cannot all fit
 * in the rest of the file. */
int gguf_cursor_check_count(const struct gguf_cursor *c, uint64_t count, uint64_t min_bytes,
                            struct atsi_err *err);
/* Little-endian value of n (1..8) bytes. */
uint64_t gguf_le(const uint8_t *p, uint32_t n);

#endif
