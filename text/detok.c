/* SPDX-License-Identifier: Apache-2.0
 *
 * Ids back to text: one token, a whole text, a stream.
 */
#include "text/tokenizer_impl.h"
#include "text/utf8.h"

/* The bytes a token contributes: its spelling for tokens that are markers, nothing for those that
 * are not to be seen. */
static const char *piece_of(const struct atsi_tokenizer *t, int32_t id, bool special,
                            size_t *len_out)
{
    const struct atsi_vocab *v = &t->vocab;
    *len_out = 0;
    if (id < 0 || (uint32_t)id >= v->n)
        return NULL;
    switch (v->type[id]) {
    case ATSI_TOKEN_UNKNOWN:
    case ATSI_TOKEN_CONTROL:
        return special ? atsi_strlist_at(&v->text, (uint32_t)id, len_out) : NULL;
    case ATSI_TOKEN_USER:
        return atsi_strlist_at(&v->text, (uint32_t)id, len_out);
    case ATSI_TOKEN_UNUSED:
        return NULL;
    default:
        return atsi_strlist_at(&v->raw, (uint32_t)id, len_out);
    }
}

size_t atsi_token_bytes(const struct atsi_tokenizer *t, int32_t id, bool special, char *buf,
                        size_t size)
{
    size_t n;
    const char *p = piece_of(t, id, special, &n);
    if (n > 0 && size > 0)
        memcpy(buf, p, n < size ? n : size);
    return n;
}

int atsi_detokenize(const struct atsi_tokenizer *t, const int32_t *ids, size_t n, bool special,
                    char **text_out, size_t *len_out, struct atsi_err *err)
{
    struct atsi_bytes out = {.n = 0};
    *text_out = NULL;
    *len_out = 0;
    for (size_t i = 0; i < n; i++) {
        size_t len;
        const char *p = piece_of(t, ids[i], special, &len);
        /* The space that encoding put in front.  A token that stands before it, BOS say, keeps it
         * from being the first thing, whether that token is written out or not. */
        bool drop = i == 0 && t->vocab.add_space_prefix && len > 0 && p[0] == ' ';
        if (len > 0 && !atsi_bytes_add(&out, p + drop, len - drop))
            goto fail;
    }
    if (t->clean_up)
        out.n = atsi_clean_up(out.p, out.n);
    *len_out = out.n;
    if (!atsi_bytes_add(&out, "", 1))
        goto fail;
    *text_out = out.p;
    return ATSI_OK;
fail:
    free(out.p);
    *len_out = 0;
    return atsi_fail(err, ATSI_ENOMEM, "detokenize: out of memory");
}

int atsi_detok_push(struct atsi_detok *d, const struct atsi_tokenizer *t, int32_t id, bool special,
                    char **out, size_t *len_out, struct atsi_err *err)
{
    size_t n, total, held;
    const char *p = piece_of(t, id, special, &n);
    char *text;
    *out = NULL;
    *len_out = 0;
    total = d->n_pending + n;
    text = malloc(total + 1);
    if (text == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "detokenize: out of memory");
    memcpy(text, d->pending, d->n_pending);
    if (n > 0)
        memcpy(text + d->n_pending, p, n);
    held = atsi_utf8_open_tail(text, total);
    memcpy(d->pending, text + total - held, held);
    d->n_pending = (uint32_t)held;
    text[total - held] = '\0';
    *out = text;
    *len_out = total - held;
    return ATSI_OK;
}

size_t atsi_detok_flush(struct atsi_detok *d, char out[8])
{
    size_t n = d->n_pending;
    memcpy(out, d->pending, n);
    d->n_pending = 0;
    return n;
}
