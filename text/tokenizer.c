/* SPDX-License-Identifier: Apache-2.0
 *
 * The tokenizer: opening one from metadata, and the way of a text through it.
 *
 *   text -> special tokens cut out -> [BPE: repair, NFC, words] -> merges -> ids
 */
#include "text/tokenizer_impl.h"

#include <stdio.h>

#include "text/nfc.h"
#include "text/utf8.h"
#include "text/vocab_meta.h"

/* The model kind, and for BPE the pre-tokenizer by name. */
static int read_kind(struct atsi_tokenizer *t, const struct atsi_meta_source *src,
                     const struct atsi_pretok_kind **kind_out, struct atsi_err *err)
{
    int rc = atsi_meta_name(src, "tokenizer.ggml.model", t->model, err);
    if (rc < 0)
        return rc;
    if (rc == 0)
        return atsi_fail(err, ATSI_ENOENT, "no vocabulary: tokenizer.ggml.model is missing");
    rc = atsi_meta_name(src, "tokenizer.ggml.pre", t->pre, err);
    if (rc < 0)
        return rc;
    if (strcmp(t->model, "llama") == 0) {
        t->vocab.kind = ATSI_VOCAB_SPM;
        return ATSI_OK;
    }
    if (strcmp(t->model, "gpt2") != 0)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "tokenizer.ggml.model \"%s\" is not supported (llama and gpt2 are)",
                         t->model);
    t->vocab.kind = ATSI_VOCAB_BPE;
    *kind_out = atsi_pretok_find(rc == 1 ? t->pre : "default");
    if (*kind_out == NULL)
        return atsi_fail(err, ATSI_ENOTSUP,
                         "tokenizer.ggml.pre \"%s\" is not known; splitting text wrongly would "
                         "silently spoil answers",
                         t->pre);
    return ATSI_OK;
}

/* True when the publisher's normalization to NFC has to be done.  It is for Qwen vocabularies,
 * which have tokens of composed letters.  Vocabularies without them (cut down, or borrowed names)
 * were not trained on composed text: there the bytes stay as they are.  The name qwen35 is also
 * carried by llama.cpp's own test vocabulary, which lacks the publisher's special tokens. */
static bool wants_nfc(const struct atsi_vocab *v, unsigned flags, const char *pre)
{
    static const char mark[] = "<|vision_pad|>";
    if ((flags & ATSI_PRE_NFC) == 0 || atsi_strmap_find(&v->map, "\xC3\xA9", 2) >= v->n)
        return false;
    return strcmp(pre, "qwen35") != 0 || atsi_strmap_find(&v->map, mark, sizeof mark - 1) < v->n;
}

static int open_bpe(struct atsi_tokenizer *t, const struct atsi_pretok_kind *kind,
                    const struct atsi_meta_source *src, struct atsi_err *err)
{
    int rc = atsi_pretok_open(kind, &t->pretok, err);
    if (rc != ATSI_OK)
        return rc;
    rc = atsi_bpe_open(&t->bpe, &t->vocab, src, err);
    if (rc != ATSI_OK)
        return rc;
    t->bpe.ignore_merges = (kind->flags & ATSI_PRE_IGNORE_MERGES) != 0;
    t->vocab.add_bos = (kind->flags & ATSI_PRE_ADD_BOS) != 0;
    t->clean_up = (kind->flags & ATSI_PRE_CLEAN_UP) != 0;
    t->nfc = wants_nfc(&t->vocab, kind->flags, t->pre);
    return ATSI_OK;
}

static int open_spm(struct atsi_tokenizer *t, struct atsi_err *err)
{
    t->vocab.add_bos = true;
    t->vocab.add_space_prefix = true;
    return atsi_spm_open(&t->spm, &t->vocab, err);
}

static int read_switches(struct atsi_vocab *v, const struct atsi_meta_source *src,
                         struct atsi_err *err)
{
    int rc = atsi_meta_bool(src, "tokenizer.ggml.add_bos_token", &v->add_bos, err);
    if (rc >= 0)
        rc = atsi_meta_bool(src, "tokenizer.ggml.add_eos_token", &v->add_eos, err);
    if (rc >= 0)
        rc = atsi_meta_bool(src, "tokenizer.ggml.add_space_prefix", &v->add_space_prefix, err);
    return rc < 0 ? rc : ATSI_OK;
}

static int open_parts(struct atsi_tokenizer *t, const struct atsi_meta_source *src,
                      struct atsi_err *err)
{
    const struct atsi_pretok_kind *kind = NULL;
    int rc = read_kind(t, src, &kind, err);
    if (rc == ATSI_OK)
        rc = atsi_vocab_open(&t->vocab, src, err);
    if (rc == ATSI_OK)
        rc = kind != NULL ? open_bpe(t, kind, src, err) : open_spm(t, err);
    if (rc == ATSI_OK)
        rc = read_switches(&t->vocab, src, err);
    if (rc == ATSI_OK)
        rc = atsi_vocab_find_special(&t->vocab, src, err);
    return rc == ATSI_OK ? atsi_special_open(&t->special, &t->vocab, err) : rc;
}

int atsi_tokenizer_open(const struct atsi_meta_source *src, struct atsi_tokenizer **out,
                        struct atsi_err *err)
{
    struct atsi_tokenizer *t = calloc(1, sizeof *t);
    int rc;
    *out = NULL;
    if (t == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "tokenizer: out of memory");
    rc = open_parts(t, src, err);
    if (rc != ATSI_OK) {
        atsi_tokenizer_close(t);
        return rc;
    }
    *out = t;
    return ATSI_OK;
}

void atsi_tokenizer_close(struct atsi_tokenizer *t)
{
    if (t == NULL)
        return;
    atsi_special_close(&t->special);
    atsi_spm_close(&t->spm);
    atsi_bpe_close(&t->bpe);
    atsi_pretok_close(t->pretok);
    atsi_vocab_close(&t->vocab);
    free(t);
}

/* One call of atsi_tokenize. */
struct call {
    const struct atsi_tokenizer *t;
    struct atsi_encoder enc;
    struct atsi_pretok_run *run; /* of a BPE vocabulary */
    const char *words;           /* the text that word offsets refer to */
};

static int take_word(void *ctx, size_t start, size_t len)
{
    struct call *c = ctx;
    return atsi_bpe_word(&c->t->bpe, &c->enc, c->words + start, len);
}

/* What the expressions look at: the text itself, or, when it holds surrogates, which PCRE2 takes
 * for an error, a copy of the same length without them. */
static int subject_of(struct call *c, const char *text, size_t n, const char **out)
{
    struct atsi_bytes *copy = &c->enc.subject;
    *out = text;
    if (atsi_utf8_valid_prefix(text, n) == n)
        return ATSI_OK;
    copy->n = 0;
    if (!atsi_utf8_repair(text, n, false, copy))
        return atsi_encoder_no_memory(&c->enc);
    *out = copy->p;
    return ATSI_OK;
}

/* Repairs and normalizes text[n] where needed; *text and *n then refer to the result. */
static int prepare(struct call *c, const char **text, size_t *n)
{
    struct atsi_bytes *fixed = &c->enc.text, *normal = &c->enc.mapped;
    if (atsi_utf8_valid_prefix(*text, *n) != *n) {
        fixed->n = 0;
        if (!atsi_utf8_repair(*text, *n, true, fixed))
            return atsi_encoder_no_memory(&c->enc);
        *text = fixed->p;
        *n = fixed->n;
    }
    if (c->t->nfc && atsi_nfc_done(*text, *n) != *n) {
        normal->n = 0;
        if (!atsi_nfc(*text, *n, normal))
            return atsi_encoder_no_memory(&c->enc);
        *text = normal->p;
        *n = normal->n;
    }
    return ATSI_OK;
}

static int bpe_fragment(struct call *c, const char *text, size_t n)
{
    const char *subject = NULL;
    int rc = prepare(c, &text, &n);
    if (rc == ATSI_OK)
        rc = subject_of(c, text, n, &subject);
    if (rc != ATSI_OK)
        return rc;
    c->words = text;
    return atsi_pretok_split(c->t->pretok, c->run, subject, n, take_word, c, c->enc.err);
}

/* Text between special tokens: always at the beginning or right after one. */
static int fragment(struct call *c, const char *text, size_t n)
{
    if (n == 0)
        return ATSI_OK;
    if (c->t->vocab.kind == ATSI_VOCAB_SPM)
        return atsi_spm_fragment(&c->t->spm, &c->enc, text, n, c->t->vocab.add_space_prefix);
    return bpe_fragment(c, text, n);
}

static int add_id(struct call *c, int32_t id)
{
    return atsi_ids_add(&c->enc.ids, id) ? ATSI_OK : atsi_encoder_no_memory(&c->enc);
}

static int encode(struct call *c, const char *text, size_t n, const struct atsi_matches *special)
{
    size_t at = 0;
    for (size_t i = 0; i < special->n; i++) {
        const struct atsi_match *m = &special->p[i];
        int rc = fragment(c, text + at, m->start - at);
        if (rc == ATSI_OK)
            rc = add_id(c, (int32_t)m->id);
        if (rc != ATSI_OK)
            return rc;
        at = m->start + m->len;
    }
    return fragment(c, text + at, n - at);
}

static int encode_all(struct call *c, const char *text, size_t n, uint32_t flags)
{
    const struct atsi_vocab *v = &c->t->vocab;
    struct atsi_matches special = {.n = 0};
    bool add = (flags & ATSI_TOK_ADD_SPECIAL) != 0;
    int rc = ATSI_OK;
    if (add && v->add_bos && v->bos >= 0)
        rc = add_id(c, v->bos);
    if (rc == ATSI_OK && !atsi_special_find(&c->t->special, text, n,
                                            (flags & ATSI_TOK_PARSE_SPECIAL) != 0, &special))
        rc = atsi_encoder_no_memory(&c->enc);
    if (rc == ATSI_OK)
        rc = encode(c, text, n, &special);
    if (rc == ATSI_OK && add && v->add_eos && v->eos >= 0)
        rc = add_id(c, v->eos);
    free(special.p);
    return rc;
}

static void free_call(struct call *c)
{
    atsi_pretok_run_close(c->run);
    atsi_merger_close(&c->enc.merger);
    free(c->enc.text.p);
    free(c->enc.subject.p);
    free(c->enc.mapped.p);
}

int atsi_tokenize_counted(const struct atsi_tokenizer *t, const char *text, size_t len,
                          uint32_t flags, int32_t **ids_out, size_t *n_out, uint64_t *n_steps_out,
                          struct atsi_err *err)
{
    struct call c = {.t = t, .enc = {.err = err}};
    int rc = ATSI_OK;
    *ids_out = NULL;
    *n_out = 0;
    if (len > INT32_MAX)
        return atsi_fail(err, ATSI_EINVAL, "tokenize: %zu bytes of text, at most %d at once", len,
                         INT32_MAX);
    if (t->pretok != NULL)
        rc = atsi_pretok_run_open(t->pretok, len, &c.run, err);
    if (rc == ATSI_OK)
        rc = encode_all(&c, text, len, flags);
    *n_steps_out = c.enc.merger.n_steps;
    free_call(&c);
    if (rc != ATSI_OK || c.enc.ids.n == 0) {
        free(c.enc.ids.p);
        return rc;
    }
    *ids_out = c.enc.ids.p;
    *n_out = c.enc.ids.n;
    return ATSI_OK;
}

int atsi_tokenize(const struct atsi_tokenizer *t, const char *text, size_t len, uint32_t flags,
                  int32_t **ids_out, size_t *n_out, struct atsi_err *err)
{
    uint64_t n_steps;
    return atsi_tokenize_counted(t, text, len, flags, ids_out, n_out, &n_steps, err);
}

void atsi_tokenizer_info(const struct atsi_tokenizer *t, struct atsi_vocab_info *out)
{
    const struct atsi_vocab *v = &t->vocab;
    *out = (struct atsi_vocab_info){.model = t->model,
                                    .pre = t->pre,
                                    .n_tokens = v->n,
                                    .bos = v->bos,
                                    .eos = v->eos,
                                    .eot = v->eot,
                                    .eom = v->eom,
                                    .unk = v->unk,
                                    .pad = v->pad,
                                    .nl = v->nl,
                                    .add_bos = v->add_bos,
                                    .add_eos = v->add_eos};
}

static bool has_flag(const struct atsi_tokenizer *t, int32_t id, uint8_t flag)
{
    return id >= 0 && (uint32_t)id < t->vocab.n && (t->vocab.flags[id] & flag) != 0;
}

bool atsi_token_is_eog(const struct atsi_tokenizer *t, int32_t id)
{
    return has_flag(t, id, ATSI_TOKEN_STOPS);
}

bool atsi_token_is_suppressed(const struct atsi_tokenizer *t, int32_t id)
{
    return has_flag(t, id, ATSI_TOKEN_SUPPRESSED);
}

const char *atsi_token_text(const struct atsi_tokenizer *t, int32_t id, size_t *len_out)
{
    *len_out = 0;
    if (id < 0 || (uint32_t)id >= t->vocab.n)
        return NULL;
    return atsi_strlist_at(&t->vocab.text, (uint32_t)id, len_out);
}
