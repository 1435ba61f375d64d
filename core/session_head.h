/* SPDX-License-Identifier: Apache-2.0
 * The head of a session file (docs/session-file.md): what the file holds, for which model, and the
 * checksums of all of it. */
#ifndef ATSI_CORE_SESSION_HEAD_H
#define ATSI_CORE_SESSION_HEAD_H

#include "core/fingerprint.h"
#include "core/session.h"

#define ATSI_SESSION_USER_MAX ((uint64_t)64 << 20) /* bytes of the application */

enum atsi_part_kind { ATSI_PART_KV = 1, ATSI_PART_STATE = 2 };

struct atsi_part_head {
    uint32_t kind; /* enum atsi_part_kind */
    int32_t layer;
    uint64_t shape[3]; /* heads, dimension of keys, of values; or ne of a state */
    uint32_t window;   /* positions; 0: all are visible, or a state */
    uint64_t bytes, sum;
};

struct atsi_session_head {
    struct atsi_fingerprint model;
    uint32_t n_vocab, n_past, rewind_low, type_k, type_v;
    uint32_t n_kv, n_states;
    uint64_t user_bytes, tokens_sum, user_sum;
    struct atsi_part_head *parts; /* [n_kv + n_states] */
};

/* The head of a file that holds n_past positions of a session, such that they can be cut to any
 * position from rewind_low on; without checksums and user bytes. */
int atsi_session_head_make(const struct atsi_session *s, uint32_t n_past, uint32_t rewind_low,
                           struct atsi_session_head *out, struct atsi_err *err);
void atsi_session_head_free(struct atsi_session_head *h);

/* Bytes of the encoded head, and of the whole file; the parts begin behind tokens and user bytes.
 * Of a head that was made or read: they cannot overflow. */
uint64_t atsi_session_head_bytes(const struct atsi_session_head *h);
uint64_t atsi_session_file_bytes(const struct atsi_session_head *h);

/* [owned by caller: free()], atsi_session_head_bytes() long; NULL when out of memory. */
unsigned char *atsi_session_head_encode(const struct atsi_session_head *h);

/* Reads and checks the head of an open file of file_bytes bytes, in itself: after ATSI_OK its sizes
 * agree with each other and with the file.  `name` is for messages.  ATSI_EFORMAT, ATSI_ENOTSUP
 * (version), ATSI_EIO, ATSI_ENOMEM; there is nothing to free then. */
int atsi_session_head_read(int fd, uint64_t file_bytes, const char *name,
                           struct atsi_session_head *out, struct atsi_err *err);

/* ATSI_EINVAL unless a file with head `file` suits a session whose own head would be `mine`. */
int atsi_session_head_match(const struct atsi_session_head *file,
                            const struct atsi_session_head *mine, const char *name,
                            struct atsi_err *err);

/* Reads exactly n bytes at an offset.  ATSI_EIO; ATSI_EFORMAT: the file ends before. */
int atsi_read_at(int fd, uint64_t at, void *p, size_t n, const char *name, struct atsi_err *err);

#endif
