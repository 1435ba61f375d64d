/* SPDX-License-Identifier: Apache-2.0
 *
 * Special ids: from their keys, else by well-known texts; and the set of tokens at which
 * generation ends.
 *
 * Files often name one end token only, or type a special token as normal text, so both are repaired
 * by text.  One guard that llama.cpp lacks: a token that a BPE merge produces was learned from
 * ordinary text and is never taken for a special one (`</s>` of the Qwen vocabularies).
 */
#include "text/vocab.h"

#include <stdio.h>

#include "text/vocab_meta.h"

/* What a well-known text means. */
#define R_STOP 1u    /* ends generation */
#define R_EOT 2u     /* end of turn, when no key names one; earlier rows first */
#define R_EOM 4u     /* end of message */
#define R_FIM 8u     /* fill-in-the-middle marker */
#define R_ALWAYS 16u /* gpt-oss: part of the message format, always written out */

enum known_token {
    K_EOT_ID,
    K_IM_END,
    K_END,
    K_END_OF_TURN,
    K_ENDOFTEXT,
    K_END_OF_TEXT,
    K_EOT,
    K_EOT_,
    K_EOT_SQUARE,
    K_EOS_DEEPSEEK,
    K_END_OF_UTTERANCE,
    K_RETURN,
    K_CALL,
    K_FLUSH,
    K_CALLS,
    K_EOS_SPM,
    K_EOM_ID,
    K_EOS_SQUARE,
    K_EOS,
    K_TURN,
    K_TOOL_RESPONSE,
    K_E_TILDE,
    K_FIM_PAD,
    K_FIM_REPO,
    K_FIM_REPO_,
    K_FIM_SEP,
    K_FIM_PREFIX,
    K_FIM_SUFFIX,
    K_FIM_MIDDLE,
    K_CHANNEL,
    K_MESSAGE,
    K_START,
    K_CONSTRAIN,
    N_KNOWN
};

static const struct {
    const char *text;
    unsigned roles;
} known[N_KNOWN] = {
    [K_EOT_ID] = {"<|eot_id|>", R_STOP | R_EOT},
    [K_IM_END] = {"<|im_end|>", R_STOP | R_EOT},
    [K_END] = {"<|end|>", R_STOP | R_EOT},
    [K_END_OF_TURN] = {"<end_of_turn>", R_STOP | R_EOT},
    [K_ENDOFTEXT] = {"<|endoftext|>", R_STOP | R_EOT},
    [K_END_OF_TEXT] = {"<|end_of_text|>", R_STOP | R_EOT},
    [K_EOT] = {"<EOT>", R_STOP | R_EOT},
    [K_EOT_] = {"_<EOT>", R_STOP | R_EOT},
    [K_EOT_SQUARE] = {"[EOT]", R_STOP | R_EOT},
    [K_EOS_DEEPSEEK] = {"<\xEF\xBD\x9C"
                        "end\xE2\x96\x81of\xE2\x96\x81sentence\xEF\xBD\x9C>",
                        R_STOP | R_EOT},
    [K_END_OF_UTTERANCE] = {"<end_of_utterance>", R_STOP | R_EOT},
    [K_RETURN] = {"<|return|>", R_STOP},
    [K_CALL] = {"<|call|>", R_STOP},
    [K_FLUSH] = {"<|flush|>", R_STOP},
    [K_CALLS] = {"<|calls|>", R_STOP},
    [K_EOS_SPM] = {"</s>", R_STOP},
    [K_EOM_ID] = {"<|eom_id|>", R_STOP | R_EOM},
    [K_EOS_SQUARE] = {"[EOS]", R_STOP},
    [K_EOS] = {"<eos>", R_STOP},
    [K_TURN] = {"<turn|>", R_STOP},
    [K_TOOL_RESPONSE] = {"<|tool_response>", R_STOP},
    [K_E_TILDE] = {"[e~[", R_STOP},
    [K_FIM_PAD] = {"<|fim_pad|>", R_STOP | R_FIM},
    [K_FIM_REPO] = {"<|fim_repo|>", R_STOP | R_FIM},
    [K_FIM_REPO_] = {"<|repo_name|>", R_STOP | R_FIM},
    [K_FIM_SEP] = {"<|file_sep|>", R_STOP | R_FIM},
    [K_FIM_PREFIX] = {"<|fim_prefix|>", R_FIM},
    [K_FIM_SUFFIX] = {"<|fim_suffix|>", R_FIM},
    [K_FIM_MIDDLE] = {"<|fim_middle|>", R_FIM},
    [K_CHANNEL] = {"<|channel|>", R_ALWAYS},
    [K_MESSAGE] = {"<|message|>", R_ALWAYS},
    [K_START] = {"<|start|>", R_ALWAYS},
    [K_CONSTRAIN] = {"<|constrain|>", R_ALWAYS},
};

/* Fills found[k] with the last token spelled known[k].text, -1 without one. */
static void find_known(const struct atsi_vocab *v, int32_t found[N_KNOWN])
{
    for (int k = 0; k < N_KNOWN; k++)
        found[k] = -1;
    for (uint32_t i = 0; i < v->n; i++) {
        size_t n;
        const char *p = atsi_strlist_at(&v->text, i, &n);
        if (n < 4 || n > 32 || (p[0] != '<' && p[0] != '[' && p[0] != '_') ||
            (v->flags[i] & ATSI_TOKEN_MERGED) != 0)
            continue;
        for (int k = 0; k < N_KNOWN; k++)
            if (strlen(known[k].text) == n && memcmp(known[k].text, p, n) == 0)
                found[k] = (int32_t)i;
    }
}

static void mark_stop(struct atsi_vocab *v, int32_t id)
{
    if (id >= 0)
        v->flags[id] |= ATSI_TOKEN_STOPS;
}

/* The roles of well-known texts, with the two exceptions of the reference. */
static void apply_known(struct atsi_vocab *v, int32_t found[N_KNOWN])
{
    bool harmony = found[K_RETURN] >= 0 && found[K_CALL] >= 0 && found[K_END] >= 0;
    if (harmony) { /* gpt-oss: <|end|> closes a message of an answer, not the answer */
        v->type[found[K_END]] = ATSI_TOKEN_USER;
        v->flags[found[K_END]] &= (uint8_t)~ATSI_TOKEN_STOPS;
        found[K_END] = -1;
    }
    if (found[K_TOOL_RESPONSE] >= 0)
        found[K_EOS_SPM] = -1;
    for (int k = 0; k < N_KNOWN; k++) {
        if (found[k] < 0)
            continue;
        if ((known[k].roles & R_STOP) != 0)
            mark_stop(v, found[k]);
        v->type[found[k]] = (known[k].roles & R_ALWAYS) != 0 ? ATSI_TOKEN_USER : ATSI_TOKEN_CONTROL;
        if ((known[k].roles & R_EOT) != 0 && v->eot < 0)
            v->eot = found[k];
        if ((known[k].roles & R_EOM) != 0 && v->eom < 0)
            v->eom = found[k];
    }
}

/* *id: the key's value when it is there and inside the vocabulary, else what it was. */
static int read_id(const struct atsi_vocab *v, const struct atsi_meta_source *src, const char *key,
                   int32_t *id, struct atsi_err *err)
{
    int64_t value;
    int rc = atsi_meta_int(src, key, &value, err);
    if (rc == 1 && value >= 0 && value < (int64_t)v->n)
        *id = (int32_t)value;
    return rc < 0 ? rc : ATSI_OK;
}

static int read_ids(struct atsi_vocab *v, const struct atsi_meta_source *src, struct atsi_err *err)
{
    int32_t fim[3] = {-1, -1, -1};
    const struct {
        const char *key;
        int32_t *id;
        bool stops;
    } keys[] = {
        {"tokenizer.ggml.bos_token_id", &v->bos, false},
        {"tokenizer.ggml.eos_token_id", &v->eos, true},
        {"tokenizer.ggml.eot_token_id", &v->eot, true},
        {"tokenizer.ggml.eom_token_id", &v->eom, true},
        {"tokenizer.ggml.unknown_token_id", &v->unk, false},
        {"tokenizer.ggml.padding_token_id", &v->pad, false},
        {"tokenizer.ggml.fim_pad_token_id", &fim[0], true},
        {"tokenizer.ggml.fim_rep_token_id", &fim[1], true},
        {"tokenizer.ggml.fim_sep_token_id", &fim[2], true},
    };
    for (size_t i = 0; i < sizeof keys / sizeof keys[0]; i++) {
        int rc = read_id(v, src, keys[i].key, keys[i].id, err);
        if (rc != ATSI_OK)
            return rc;
        if (keys[i].stops)
            mark_stop(v, *keys[i].id);
    }
    return ATSI_OK;
}

/* Sets `flag` on every token listed under `key`. */
static int flag_list(struct atsi_vocab *v, const struct atsi_meta_source *src, const char *key,
                     uint8_t flag, struct atsi_err *err)
{
    struct atsi_meta m;
    int rc = atsi_meta_numbers(src, key, true, &m, err);
    if (rc <= 0)
        return rc;
    for (uint64_t i = 0; i < m.count; i++) {
        double id = atsi_meta_number(&m, i);
        if (!(id >= 0 && id < v->n))
            return atsi_fail(err, ATSI_EFORMAT,
                             "%s: entry %llu is %.0f, the vocabulary has %u tokens", key,
                             (unsigned long long)i, id, v->n);
        v->flags[(uint32_t)id] |= flag;
    }
    return ATSI_OK;
}

static int32_t in_range(const struct atsi_vocab *v, int32_t id)
{
    return id < (int32_t)v->n ? id : -1;
}

int atsi_vocab_find_special(struct atsi_vocab *v, const struct atsi_meta_source *src,
                            struct atsi_err *err)
{
    bool spm = v->kind == ATSI_VOCAB_SPM;
    int32_t found[N_KNOWN];
    int rc;
    v->bos = spm ? in_range(v, 1) : -1;
    v->eos = spm ? in_range(v, 2) : -1;
    v->unk = spm ? 0 : -1;
    v->eot = v->eom = v->pad = -1;
    v->nl = v->byte_id['\n'];
    rc = read_ids(v, src, err);
    if (rc == ATSI_OK)
        rc = flag_list(v, src, "tokenizer.ggml.eos_token_ids", ATSI_TOKEN_STOPS, err);
    if (rc == ATSI_OK)
        rc = flag_list(v, src, "tokenizer.ggml.suppress_tokens", ATSI_TOKEN_SUPPRESSED, err);
    if (rc != ATSI_OK)
        return rc;
    find_known(v, found);
    apply_known(v, found);
    return ATSI_OK;
}
