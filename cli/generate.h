/* SPDX-License-Identifier: Apache-2.0
 * Pieces that the generating subcommands share. */
#ifndef ATSI_CLI_GENERATE_H
#define ATSI_CLI_GENERATE_H

#include "cli/cli.h"
#include "text/tokenizer.h"

/* The tokenizer of a model; prints on failure and returns an exit code. */
int cli_tokenizer(const struct atsi_model *m, struct atsi_tokenizer **out);
/* Index of the largest logit, the lowest on a tie. */
int32_t cli_argmax(const float *logits, uint32_t n);
/* A whole file (or standard input for "-"); [owned by caller: free()].  Prints on failure. */
int cli_read_file(const char *path, char **text_out, size_t *len_out);

#endif
