/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes tokenizers.  The first byte chooses vocabulary and flags; the rest is text, or, with the
 * top bit set, tokens and merges of a hostile vocabulary up to the first NUL byte.  What a
 * byte-complete BPE vocabulary encodes must come back byte for byte. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "tests/unit/text_meta.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

#define MAX_WORDS 64u

static const char *const pres[] = {"qwen2",   "llama-bpe", "gpt-4o", "gpt-2",
                                   "default", "qwen35",    "glm4",   "deepseek-v3"};
static const char *const merges[] = {"t h",         "th e", "a n", "\304\240 a",
                                     "\304\240 th", "i n",  "in g"};
static const struct text_token extra[] = {
    {"<|im_end|>", 3, 0},       {"<tool>", 4, 0}, {"\342\226\201a", 1, -1},
    {"\342\226\201the", 1, -2}, {"th", 1, -3},    {"", 1, -4}};

/* Lines of the input as texts; [borrowed from `copy`] */
static size_t split_lines(char *copy, size_t len, const char **words)
{
    size_t n = 0;
    char *at = copy;
    copy[len] = '\0';
    while (n < MAX_WORDS && at != NULL && *at != '\0') {
        char *end = strchr(at, '\n');
        words[n++] = at;
        if (end != NULL)
            *end++ = '\0';
        at = end;
    }
    return n;
}

static void make_vocabulary(struct text_meta *m, uint8_t how, char *copy, size_t len)
{
    const char *words[MAX_WORDS], *pairs[MAX_WORDS];
    size_t n_pairs = 0;
    struct text_token hostile[MAX_WORDS];
    size_t n = (how & 0x80) != 0 ? split_lines(copy, len, words) : 0;
    for (size_t i = 0; i < n; i++) {
        hostile[i] = (struct text_token){words[i], 1 + (int32_t)(i % 6), (float)i - 3.5F};
        if (words[i][0] != '\0' && strchr(words[i] + 1, ' ') != NULL && strlen(words[i]) < 60)
            pairs[n_pairs++] = words[i];
    }
    if ((how & 0x08) != 0)
        text_meta_spm(m, n > 0 ? hostile : extra, n > 0 ? n : sizeof extra / sizeof extra[0]);
    else
        text_meta_bpe(m, pres[how & 7], n > 0 ? pairs : merges,
                      n > 0 ? n_pairs : sizeof merges / sizeof merges[0], n > 0 ? hostile : extra,
                      n > 0 ? n : 2);
}

static int is_ascii(const char *text, size_t len)
{
    for (size_t i = 0; i < len; i++)
        if ((unsigned char)text[i] >= 0x80)
            return 0;
    return 1;
}

static void check_text(const struct atsi_tokenizer *t, uint8_t how, const char *text, size_t len)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_vocab_info info;
    int32_t *ids = NULL;
    char *back = NULL;
    size_t n = 0, n_back = 0;
    atsi_tokenizer_info(t, &info);
    if (atsi_tokenize(t, text, len, (how >> 4) & 3U, &ids, &n, &err) != ATSI_OK)
        return;
    for (size_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= info.n_tokens)
            abort();
    if (atsi_detokenize(t, ids, n, true, &back, &n_back, &err) == ATSI_OK && (how & 0xb8) == 0 &&
        strcmp(info.pre, "deepseek-v3") == 0 && is_ascii(text, len) &&
        (n_back != len || memcmp(back, text, len) != 0))
        abort(); /* plain BPE without clean-up or normalization gives the bytes back */
    free(back);
    free(ids);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct text_meta m = {.n = 0};
    struct atsi_meta_source src;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_tokenizer *t = NULL;
    const uint8_t *nul;
    size_t words;
    char *copy;
    if (size < 1)
        return 0;
    nul = (data[0] & 0x80) != 0 ? memchr(data + 1, 0, size - 1) : NULL;
    words = nul != NULL ? (size_t)(nul - data - 1) : 0;
    copy = malloc(size + 1);
    if (copy == NULL)
        return 0;
    memcpy(copy, data + 1, size - 1);
    make_vocabulary(&m, data[0], copy, words);
    src = text_meta_source(&m);
    if (atsi_tokenizer_open(&src, &t, &err) == ATSI_OK)
        check_text(t, data[0], (const char *)data + 1 + words, size - 1 - words);
    else if (err.msg[0] == '\0')
        abort();
    atsi_tokenizer_close(t);
    text_meta_free(&m);
    free(copy);
    return 0;
}
