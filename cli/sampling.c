/* SPDX-License-Identifier: Apache-2.0
 *
 * The sampling options of `run` and `chat`: one table, and how their values, the model file's
 * recommendations (general.sampling.*, as llama.cpp honours them) and our defaults become a
 * sampler and a set of stop strings.
 */
#include "cli/sampling.h"

#include "text/buf.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>
#include <time.h>

struct cli_sampling cli_sampling = {.n_predict = -1,
                                    .seed = -1,
                                    .top_k = CLI_UNSET_INT,
                                    .last_n = CLI_UNSET_INT,
                                    .temp = NAN,
                                    .top_p = NAN,
                                    .min_p = NAN,
                                    .typical_p = NAN,
                                    .repeat = NAN,
                                    .presence = NAN,
                                    .frequency = NAN};

const struct cli_option cli_sampling_options[] = {
    {.name = "-n|--predict|--n-predict",
     .arg = "N",
     .help = "tokens to add, -1: until the end of text or context",
     .integer = &cli_sampling.n_predict,
     .min = -1,
     .max = INT32_MAX},
    {.name = "-r|--stop|--reverse-prompt",
     .arg = "TEXT",
     .help = "stop before this text (\\n, \\t, \\xHH are understood); may be repeated",
     .texts = &cli_sampling.stop},
    {.name = "--ignore-eos",
     .help = "never end the text: forbid the tokens that do",
     .flag = &cli_sampling.ignore_eos},
    {.name = "-s|--seed",
     .arg = "N",
     .help = "same seed, same text; -1: random",
     .integer = &cli_sampling.seed,
     .min = -1,
     .max = 9e15},
    {.name = "--temp",
     .arg = "X",
     .help = "temperature, 0: always the likeliest token",
     .real = &cli_sampling.temp,
     .min = 0,
     .max = 100},
    {.name = "--top-k",
     .arg = "N",
     .help = "only the N likeliest tokens, 0: all",
     .integer = &cli_sampling.top_k,
     .min = 0,
     .max = INT32_MAX},
    {.name = "--top-p",
     .arg = "X",
     .help = "smallest set of that total probability, 1: off",
     .real = &cli_sampling.top_p,
     .min = 0,
     .max = 1},
    {.name = "--min-p",
     .arg = "X",
     .help = "at least X times the best probability, 0: off",
     .real = &cli_sampling.min_p,
     .min = 0,
     .max = 1},
    {.name = "--typical",
     .arg = "X",
     .help = "locally typical sampling, 1: off",
     .real = &cli_sampling.typical_p,
     .min = 0,
     .max = 1},
    {.name = "--repeat-penalty",
     .arg = "X",
     .help = "divide logits of recent tokens, 1: off",
     .real = &cli_sampling.repeat,
     .min = 0.01,
     .max = 100},
    {.name = "--presence-penalty",
     .arg = "X",
     .help = "subtract once for recent tokens",
     .real = &cli_sampling.presence,
     .min = -100,
     .max = 100},
    {.name = "--frequency-penalty",
     .arg = "X",
     .help = "subtract per occurrence",
     .real = &cli_sampling.frequency,
     .min = -100,
     .max = 100},
    {.name = "--repeat-last-n",
     .arg = "N",
     .help = "tokens the penalties look at, -1: all",
     .integer = &cli_sampling.last_n,
     .min = -1,
     .max = INT32_MAX},
    {.name = "--logit-bias",
     .arg = "ID+X,ID-X",
     .help = "add to the logits of tokens (-inf forbids)",
     .text = &cli_sampling.bias},
    {.name = NULL},
};

/* ---------------------------------------------------------------- logit bias */
struct biases {
    struct atsi_logit_bias *p; /* [owned] */
    size_t n, cap;
};

static bool add_bias(struct biases *b, int32_t id, float x)
{
    void *p = b->p;
    bool ok = atsi_grow(&p, b->n, &b->cap, 1, sizeof *b->p);
    b->p = p;
    if (ok)
        b->p[b->n++] = (struct atsi_logit_bias){id, x};
    return ok;
}

/* "ID+X,ID-X": how llama.cpp users write it. */
static int parse_bias(const char *p, uint32_t n_vocab, struct biases *out)
{
    for (;;) {
        char *end = NULL, *last = NULL;
        long id = strtol(p, &end, 10);
        float x = end != p && (*end == '+' || *end == '-') ? strtof(end, &last) : 0.0F;
        if (last == NULL || last == end || (*last != ',' && *last != '\0') || id < 0 || isnan(x))
            return cli_fail(CLI_USAGE, "--logit-bias: \"%.24s\": expected ID+X or ID-X", p);
        if (id >= (long)n_vocab)
            return cli_fail(CLI_USAGE, "--logit-bias: id %ld is outside the vocabulary, 0..%u", id,
                            n_vocab - 1);
        if (!add_bias(out, (int32_t)id, x))
            return cli_fail(CLI_RUN_ERROR, "out of memory");
        if (*last == '\0')
            return CLI_OK;
        p = last + 1;
    }
}

/* Tokens that may not be chosen at all. */
static int forbid(const struct atsi_tokenizer *tok, uint32_t n_vocab, struct biases *out)
{
    struct atsi_vocab_info info;
    atsi_tokenizer_info(tok, &info);
    for (uint32_t i = 0; i < info.n_tokens && i < n_vocab; i++) {
        int32_t id = (int32_t)i;
        if (atsi_token_is_suppressed(tok, id) ||
            (cli_sampling.ignore_eos && atsi_token_is_eog(tok, id)))
            if (!add_bias(out, id, -INFINITY))
                return cli_fail(CLI_RUN_ERROR, "out of memory");
    }
    return CLI_OK;
}

/* ---------------------------------------------------------------- values */
/* A number of the model file; false when it has none under that key or one out of [min, max],
 * which is said once. */
static bool recommended(const struct atsi_model *m, const char *key, double min, double max,
                        double *out)
{
    struct atsi_meta meta = {.struct_size = sizeof meta};
    double x;
    if (atsi_model_meta_find(m, key, &meta) != ATSI_OK)
        return false;
    switch (meta.type) {
    case ATSI_META_F32:
    case ATSI_META_F64:
        x = meta.v.f;
        break;
    case ATSI_META_I8:
    case ATSI_META_I16:
    case ATSI_META_I32:
    case ATSI_META_I64:
        x = (double)meta.v.i;
        break;
    case ATSI_META_U8:
    case ATSI_META_U16:
    case ATSI_META_U32:
    case ATSI_META_U64:
        x = (double)meta.v.u;
        break;
    default:
        x = NAN;
    }
    if (!(x >= min && x <= max)) {
        static bool said; /* `chat` opens a sampler for every answer */
        if (!said)
            cli_warn("the model file's %s is no number from %g to %g; not used", key, min, max);
        said = true;
        return false;
    }
    *out = x;
    return true;
}

/* Given on the command line, else recommended by the file, else `otherwise`.  `option` has the
 * range; `key` may be NULL. */
static double choose(const struct atsi_model *m, const char *key, double given, const char *option,
                     double otherwise)
{
    const struct cli_option *o = cli_sampling_options;
    double x;
    if (!isnan(given))
        return given;
    while (strcmp(o->name, option) != 0)
        o++;
    return key != NULL && recommended(m, key, o->min, o->max, &x) ? x : otherwise;
}

static double from_int(int64_t given)
{
    return given == CLI_UNSET_INT ? NAN : (double)given;
}

static uint64_t random_seed(void)
{
    uint64_t x = 0;
    if (getrandom(&x, sizeof x, 0) != (ssize_t)sizeof x)
        x = (uint64_t)time(NULL);
    return x;
}

static void choose_params(const struct atsi_model *m, struct atsi_sampler_params *p)
{
    const struct cli_sampling *c = &cli_sampling;
    atsi_sampler_defaults(p);
    p->temp = (float)choose(m, "general.sampling.temp", c->temp, "--temp", (double)p->temp);
    p->top_k = (uint32_t)choose(m, "general.sampling.top_k", from_int(c->top_k), "--top-k",
                                (double)p->top_k);
    p->top_p = (float)choose(m, "general.sampling.top_p", c->top_p, "--top-p", (double)p->top_p);
    p->min_p = (float)choose(m, "general.sampling.min_p", c->min_p, "--min-p", (double)p->min_p);
    p->penalty_repeat = (float)choose(m, "general.sampling.penalty_repeat", c->repeat,
                                      "--repeat-penalty", (double)p->penalty_repeat);
    p->penalty_last_n = (int32_t)choose(m, "general.sampling.penalty_last_n", from_int(c->last_n),
                                        "--repeat-last-n", (double)p->penalty_last_n);
    p->typical_p = (float)choose(m, NULL, c->typical_p, "--typical", (double)p->typical_p);
    p->penalty_presence =
        (float)choose(m, NULL, c->presence, "--presence-penalty", (double)p->penalty_presence);
    p->penalty_freq =
        (float)choose(m, NULL, c->frequency, "--frequency-penalty", (double)p->penalty_freq);
    p->seed = c->seed >= 0 ? (uint64_t)c->seed : random_seed();
}

int cli_sampler(const struct atsi_model *m, const struct atsi_tokenizer *tok, uint32_t n_vocab,
                struct atsi_sampler **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct biases bias = {.p = NULL};
    struct atsi_sampler_params p;
    int rc, code;
    *out = NULL;
    choose_params(m, &p);
    code = forbid(tok, n_vocab, &bias);
    if (code == CLI_OK && cli_sampling.bias != NULL)
        code = parse_bias(cli_sampling.bias, n_vocab, &bias);
    p.bias = bias.p;
    p.n_bias = bias.n;
    if (code == CLI_OK) {
        rc = atsi_sampler_open(&p, n_vocab, out, &err);
        if (rc != ATSI_OK)
            code = cli_fail_status(rc == ATSI_EINVAL ? ATSI_ECONF : rc, &err);
    }
    free(bias.p);
    return code;
}

/* ---------------------------------------------------------------- stop strings */
static int hex_digit(char c)
{
    if (c >= '0' && c <= '9')
        return c - '0';
    if (c >= 'a' && c <= 'f')
        return c - 'a' + 10;
    return c >= 'A' && c <= 'F' ? c - 'A' + 10 : -1;
}

/* The byte that the escape at *p (behind its backslash) stands for, *p moved over it; -1: none. */
static int escape(const char **p)
{
    static const char from[] = "ntr\\\"'", to[] = "\n\t\r\\\"'";
    const char *known = **p != '\0' ? strchr(from, **p) : NULL;
    if (known != NULL) {
        (*p)++;
        return (unsigned char)to[known - from];
    }
    if (**p == 'x' && hex_digit((*p)[1]) >= 0 && hex_digit((*p)[2]) >= 0) {
        int byte = hex_digit((*p)[1]) * 16 + hex_digit((*p)[2]);
        *p += 3;
        return byte;
    }
    return -1;
}

/* Writes the text without its escapes to out, which has room for strlen(p); returns its length. */
static size_t unescape(const char *p, char *out)
{
    size_t n = 0;
    while (*p != '\0') {
        int byte = -1;
        if (*p == '\\') {
            p++;
            byte = escape(&p);
            out[n++] = byte >= 0 ? (char)byte : '\\';
        } else {
            out[n++] = *p++;
        }
    }
    return n;
}

int cli_stops(struct atsi_stops **out)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_stop_text texts[CLI_MAX_TEXTS];
    size_t total = 0;
    char *room;
    int rc;
    *out = NULL;
    for (size_t i = 0; i < cli_sampling.stop.n; i++) {
        if (cli_sampling.stop.items[i][0] == '\0')
            return cli_fail(CLI_USAGE, "--stop: the text is empty");
        total += strlen(cli_sampling.stop.items[i]);
    }
    room = malloc(total + 1);
    if (room == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    total = 0;
    for (size_t i = 0; i < cli_sampling.stop.n; i++) {
        size_t n = unescape(cli_sampling.stop.items[i], room + total);
        texts[i] = (struct atsi_stop_text){room + total, n};
        total += n;
    }
    rc = atsi_stops_open(texts, cli_sampling.stop.n, out, &err);
    free(room);
    return rc == ATSI_OK ? CLI_OK : cli_fail_status(rc, &err);
}
