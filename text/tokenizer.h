/* SPDX-License-Identifier: Apache-2.0
 *
 * Text to token ids and back: SentencePiece-style (SPM) and byte-level BPE vocabularies of GGUF
 * files.
 *
 * A tokenizer is immutable after open and may be used from any thread; encode scratch is per call.
 */
#ifndef ATSI_TEXT_TOKENIZER_H
#define ATSI_TEXT_TOKENIZER_H

#include <stdbool.h>

#include "atsinfer/loader.h"
#include "atsinfer/status.h"

/* Where vocabulary metadata comes from: as atsi_loader_ops.meta_find. */
struct atsi_meta_source {
    const void *ctx;
    int (*find)(const void *ctx, const char *key, struct atsi_meta *out);
};

struct atsi_tokenizer;

/* Copies what it needs; the source may go away.  ATSI_ENOENT: no vocabulary; ATSI_ENOTSUP: model
 * kind or pre-tokenizer not known, named; ATSI_EFORMAT: arrays that disagree, named with both
 * numbers. */
int atsi_tokenizer_open(const struct atsi_meta_source *src, struct atsi_tokenizer **out,
                        struct atsi_err *err);
void atsi_tokenizer_close(struct atsi_tokenizer *t); /* NULL is allowed */

#define ATSI_TOK_ADD_SPECIAL 1u   /* BOS/EOS as the vocabulary asks */
#define ATSI_TOK_PARSE_SPECIAL 2u /* recognise special tokens written out in the text */

/* Ids of text[len] (any bytes).  *ids_out: [owned by caller: free()]; NULL when *n_out is 0.
 * ATSI_ENOMEM, ATSI_EFAIL (expression engine limit reached). */
int atsi_tokenize(const struct atsi_tokenizer *t, const char *text, size_t len, uint32_t flags,
                  int32_t **ids_out, size_t *n_out, struct atsi_err *err);

/* Whole-text decoding, with the vocabulary's clean-up rules; special tokens are written out when
 * `special`.  *text_out: NUL-terminated, may hold NUL bytes too.  [owned by caller: free()] */
int atsi_detokenize(const struct atsi_tokenizer *t, const int32_t *ids, size_t n, bool special,
                    char **text_out, size_t *len_out, struct atsi_err *err);

/* Bytes of one token as streamed (no clean-up, may end inside a UTF-8 character).  Writes at most
 * `size` bytes, returns the length needed. */
size_t atsi_token_bytes(const struct atsi_tokenizer *t, int32_t id, bool special, char *buf,
                        size_t size);

/* Streaming: collects token bytes and releases whole UTF-8 characters only. */
struct atsi_detok {
    char pending[8];
    uint32_t n_pending;
};
/* Appends token `id`; *out (NUL-terminated, [owned by caller: free()]) gets the text that may be
 * shown now, possibly "".  Bytes that can never become valid UTF-8 come out as they are. */
int atsi_detok_push(struct atsi_detok *d, const struct atsi_tokenizer *t, int32_t id, bool special,
                    char **out, size_t *len_out, struct atsi_err *err);
/* The bytes still held back, at the end of a text; at most 8; returns their number. */
size_t atsi_detok_flush(struct atsi_detok *d, char out[8]);

struct atsi_vocab_info {
    const char *model; /* "llama", "gpt2" */
    const char *pre;   /* "qwen2", ... or "" */
    uint32_t n_tokens;
    int32_t bos, eos, eot, eom, unk, pad, nl; /* -1: none */
    bool add_bos, add_eos;
};
void atsi_tokenizer_info(const struct atsi_tokenizer *t, struct atsi_vocab_info *out);
/* Generation stops at this token. */
bool atsi_token_is_eog(const struct atsi_tokenizer *t, int32_t id);
/* Never to be sampled (tokenizer.ggml.suppress_tokens). */
bool atsi_token_is_suppressed(const struct atsi_tokenizer *t, int32_t id);
/* Text in the vocabulary's own spelling.  [borrowed until close]  NULL when out of range. */
const char *atsi_token_text(const struct atsi_tokenizer *t, int32_t id, size_t *len_out);

#endif
