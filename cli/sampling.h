/* SPDX-License-Identifier: Apache-2.0
 *
 * How the next token is chosen and when a text ends: the options that `run` and `chat` share.
 *
 * A subcommand puts CLI_GROUP("sampling options", cli_sampling_options) into its table; after
 * cli_parse() the values are in cli_sampling.
 */
#ifndef ATSI_CLI_SAMPLING_H
#define ATSI_CLI_SAMPLING_H

#include "cli/cli.h"
#include "text/sampler.h"
#include "text/stop_string.h"
#include "text/tokenizer.h"

struct cli_sampling {
    int64_t n_predict; /* -n; -1: no limit */
    int64_t seed;      /* -1: random */
    /* Not given: CLI_UNSET_INT, NaN; then the model file's general.sampling.* or the default. */
    int64_t top_k, last_n;
    double temp, top_p, min_p, typical_p, repeat, presence, frequency;
    const char *bias;      /* "ID+X,ID-X" or NULL */
    struct cli_texts stop; /* as typed, escapes not resolved */
    bool ignore_eos;
};

#define CLI_UNSET_INT INT64_MIN

extern struct cli_sampling cli_sampling;
extern const struct cli_option cli_sampling_options[];

/* A sampler from cli_sampling: what was given, else what the model file recommends, else our
 * defaults.  Tokens that the vocabulary suppresses, and with --ignore-eos those that end a text,
 * are forbidden.  Prints on failure and returns an exit code.  [owned: atsi_sampler_close()] */
int cli_sampler(const struct atsi_model *m, const struct atsi_tokenizer *tok, uint32_t n_vocab,
                struct atsi_sampler **out);

/* The stop strings with escapes (\n \t \r \\ \" \' \xHH) resolved; any other backslash stands for
 * itself.  Checks them before a model is loaded.  Prints on failure and returns an exit code.
 * [owned: atsi_stops_close()] */
int cli_stops(struct atsi_stops **out);

#endif
