/* SPDX-License-Identifier: Apache-2.0
 * Pieces that the generating subcommands share: vocabulary, files, evaluation, the loop that turns
 * logits into text. */
#ifndef ATSI_CLI_GENERATE_H
#define ATSI_CLI_GENERATE_H

#include "cli/cli.h"
#include "text/buf.h"
#include "text/sampler.h"
#include "text/stop_string.h"
#include "text/tokenizer.h"

/* The tokenizer of a model; prints on failure and returns an exit code. */
int cli_tokenizer(const struct atsi_model *m, struct atsi_tokenizer **out);
/* Index of the largest logit, the lowest on a tie. */
int32_t cli_argmax(const float *logits, uint32_t n);
/* A whole file (or standard input for "-"); [owned by caller: free()].  Prints on failure. */
int cli_read_file(const char *path, char **text_out, size_t *len_out);

/* Appends ids to the session; `top` is atsi_eval's: atsi_sampler_top() of who samples next. CLI_OK;
 * CLI_INTERRUPTED (nothing printed; the session holds the rounds that were completed) once *cancel
 * is not 0; else an exit code, message printed. */
int cli_eval(struct atsi_session *s, const int32_t *ids, size_t n, uint32_t top,
             const volatile int *cancel);

/* Why a text ended. */
enum cli_ending {
    CLI_END_EOG,     /* the model ended it */
    CLI_END_LENGTH,  /* n_predict tokens */
    CLI_END_CONTEXT, /* no room for another token */
    CLI_END_STOP,    /* a stop string */
    CLI_END_INTERRUPTED
};

struct cli_generation {
    /* The session holds the prompt and the logits of its last token; the sampler has accepted the
     * prompt's tokens.  [borrowed] */
    struct atsi_session *session;
    const struct atsi_tokenizer *tok;
    struct atsi_sampler *sampler;
    struct atsi_stops *stops; /* reset here; may be NULL */
    int64_t n_predict;        /* -1: no limit */
    bool ignore_eos;          /* go on after tokens that end a text */
    bool special;             /* write special tokens out */
    const int32_t *shown;     /* n_shown special tokens that are written out in any case */
    size_t n_shown;
    /* Takes text as it appears: whole UTF-8 characters (but for bytes that are none), never a part
     * of a stop string.  Anything but CLI_OK ends the generation and is returned. */
    int (*text)(void *ctx, const char *piece, size_t len);
    void *ctx;
    const volatile int *cancel; /* may be NULL */

    /* Results.  ids: all that were sampled, a last one that ended the text included; the session
     * holds the first of them only (atsi_session_n_past): never the last.  [owned: free(ids.p)] */
    enum cli_ending ending;
    struct atsi_ids ids;
    uint64_t first_token_ns; /* clock of the host; 0: none */
};

/* Generates until one of enum cli_ending.  Returns CLI_OK (interrupted or not: see `ending`), or an
 * exit code with the message printed; `ids` is valid either way.  Text held back is released
 * before CLI_OK, unless it belongs to a stop string. */
int cli_generate(const struct atsi_host *host, struct cli_generation *g);

/* Backend, speeds and the time to the first token in ns (0: not known) on stderr. */
void cli_print_timings(const struct atsi_session_info *info, const struct atsi_session_times *t,
                       uint64_t ttft_ns);

#endif
