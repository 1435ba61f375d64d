/* SPDX-License-Identifier: Apache-2.0
 *
 * The token table: texts, bytes, types, scores, special ids, and the map from text to id.
 */
#ifndef ATSI_TEXT_VOCAB_H
#define ATSI_TEXT_VOCAB_H

#include "text/strmap.h"
#include "text/tokenizer.h"

/* Token types as numbered in GGUF. */
enum atsi_token_type {
    ATSI_TOKEN_UNDEFINED = 0,
    ATSI_TOKEN_NORMAL = 1,
    ATSI_TOKEN_UNKNOWN = 2,
    ATSI_TOKEN_CONTROL = 3,
    ATSI_TOKEN_USER = 4, /* user-defined */
    ATSI_TOKEN_UNUSED = 5,
    ATSI_TOKEN_BYTE = 6
};

enum atsi_vocab_kind { ATSI_VOCAB_SPM, ATSI_VOCAB_BPE };

#define ATSI_TOKEN_STOPS 1u      /* generation ends here */
#define ATSI_TOKEN_SUPPRESSED 2u /* never to be sampled */
#define ATSI_TOKEN_MERGED 4u     /* BPE: a merge makes it, so it was learned from text */

struct atsi_vocab {
    enum atsi_vocab_kind kind;
    uint32_t n; /* tokens */
    /* Texts in the file's spelling. */
    struct atsi_strlist text;
    /* The bytes each token stands for as ordinary text.  BPE: followed by the symbols that merges
     * need and that are no tokens, ids from n on. */
    struct atsi_strlist raw;
    /* SPM: text -> id.  BPE: raw -> id, of tokens spelled in the byte alphabet. */
    struct atsi_strmap map;
    uint8_t *type;                            /* enum atsi_token_type */
    uint8_t *flags;                           /* ATSI_TOKEN_* */
    uint32_t *prio;                           /* SPM: merge priority, lower is better; else NULL */
    int32_t byte_id[256];                     /* id of each single byte, -1: none */
    int32_t bos, eos, eot, eom, unk, pad, nl; /* -1: none */
    bool add_bos, add_eos, add_space_prefix;
};

/* Reads tokens, types and scores of a vocabulary of v->kind.  ATSI_ENOENT, ATSI_EFORMAT,
 * ATSI_ENOMEM; what was read so far is released by close in any case. */
int atsi_vocab_open(struct atsi_vocab *v, const struct atsi_meta_source *src, struct atsi_err *err);
void atsi_vocab_close(struct atsi_vocab *v);

/* The bytes of text that the characters of the byte alphabet in p[n] stand for are appended to out;
 * other characters are copied.  *pure_out: there were none of those.  false: out of memory. */
bool atsi_bpe_alphabet_decode(const char *p, size_t n, struct atsi_bytes *out, bool *pure_out);

/* Reads the special-id keys, finds the rest by text, corrects types, and marks the tokens that end
 * generation or are suppressed (stop.c). */
int atsi_vocab_find_special(struct atsi_vocab *v, const struct atsi_meta_source *src,
                            struct atsi_err *err);

#endif
