/* SPDX-License-Identifier: Apache-2.0
 *
 * What the subcommands of `atsinfer` share: options, exit codes, messages.
 *
 * Generated text and data go to stdout, everything else to stderr.
 */
#ifndef ATSI_CLI_H
#define ATSI_CLI_H

#include <limits.h>
#include <stdbool.h>
#include <stdio.h>

#include "atsinfer/atsinfer.h"

enum cli_exit {
    CLI_OK = 0,
    CLI_RUN_ERROR = 1,
    CLI_USAGE = 2,  /* usage or configuration */
    CLI_NO_FIT = 3, /* does not fit, or no device */
    CLI_SELF_TEST = 4,
    CLI_INTERRUPTED = 130
};

/* Exit code of a library status: ECONF, EINVAL of a flag -> 2; ENOFIT, ENODEV -> 3; EFAIL -> 4;
 * EINTR -> 130; else 1. */
int cli_exit_code(int status);

/* What an option that may be given several times has collected. */
#define CLI_MAX_TEXTS 32
struct cli_texts {
    const char *items[CLI_MAX_TEXTS];
    size_t n;
};

/* One option of a subcommand.  Exactly one of the targets is set. */
struct cli_option {
    const char *name; /* "--temp"; aliases separated by '|': "-m|--model" */
    const char *arg;  /* "FILE", or NULL for a switch */
    const char *help;
    const char *conf_key;    /* sets this ini key ("model.path"), as an override */
    const char *prefix;      /* before the value of conf_key; may be NULL */
    const char **text;       /* last value wins */
    int64_t *integer;        /* with [min, max] */
    double *real;            /* with [min, max] */
    bool *flag;              /* switch: set true */
    struct cli_texts *texts; /* every value is kept */
    double min, max;
    /* Not an option but a table of them, shared between subcommands; `name` is its heading. */
    const struct cli_option *group;
};
#define CLI_GROUP(heading, table)                                                                  \
    {                                                                                              \
        .name = (heading), .group = (table)                                                        \
    }

struct cli_command {
    const char *name;
    const char *summary;               /* one line for `atsinfer --help` */
    const char *usage;                 /* "atsinfer run [options] [-m MODEL]" */
    int (*run)(int argc, char **argv); /* argv[0] = subcommand name; returns an exit code */
};

/* Common options (--config, --set, --plugin, -v, -q, -m, -t, ...) and `opts` (ended by a NULL
 * name). Non-option arguments are moved to the front of argv[1..] and counted in *n_pos_out.
 * Returns -1 to go on, else the exit code to leave with (--help: 0, an error: 2, already printed).
 */
int cli_parse(const struct cli_command *cmd, const struct cli_option *opts, int argc, char **argv,
              int *n_pos_out);
/* Opens the runtime with what cli_parse collected.  On failure prints and returns an exit code. */
int cli_runtime(struct atsi_runtime **out);
/* Path of the model: -m / model.path with names of local caches resolved (cli/resolve.h), else the
 * demo model (said once on stderr).  NULL when none; then a message was printed.  [borrowed until
 * the next call of this or cli_find_model] */
const char *cli_model_path(struct atsi_runtime *rt);
/* The file that a model name stands for, as for -m. */
const char *cli_find_model(const char *name);
/* Opens that model with a progress bar on stderr for long loads.  Prints on failure. */
int cli_model(struct atsi_runtime *rt, bool no_weights, struct atsi_model **out);

/* A shipped file ("demo/...", "profiles/..."): installed in share/atsinfer beside bin/, or in the
 * source tree of a build.  False: not there. */
bool cli_share_path(const char *name, char out[PATH_MAX]);

/* "atsinfer: error: ..." on stderr; returns `code`. */
int cli_fail(int code, const char *fmt, ...) ATSI_PRINTF(2, 3);
int cli_fail_status(int status, const struct atsi_err *err);
void cli_warn(const char *fmt, ...) ATSI_PRINTF(1, 2);
/* Non-zero after SIGINT/SIGTERM; a second SIGINT ends the process with 130 at once. */
extern volatile int cli_interrupted;
void cli_catch_signals(void);
/* While on, the first SIGINT or SIGTERM ends the process with 130 at once: for work that cannot be
 * stopped half-way and leaves nothing behind. */
void cli_exit_on_signal(bool on);
/* Flushes stdout; a failed write (closed pipe, full disk) gives CLI_RUN_ERROR. */
int cli_finish_stdout(int code);

/* "6GiB", "512MiB", "64KiB" or bytes, 1 to 1e16; text NULL: *bytes stays.  An exit code, prints
 * what was wrong. */
int cli_parse_size(const char *option, const char *text, uint64_t *bytes);
/* Human-readable bytes ("4.2 GiB") into buf; returns buf. */
const char *cli_bytes(uint64_t bytes, char buf[32]);

extern const struct cli_command cli_cmd_run, cli_cmd_chat, cli_cmd_perplexity, cli_cmd_logits,
    cli_cmd_tokenize, cli_cmd_inspect, cli_cmd_bench, cli_cmd_kernels, cli_cmd_plugins,
    cli_cmd_topology, cli_cmd_config, cli_cmd_doctor, cli_cmd_policy, cli_cmd_template,
    cli_cmd_simulate, cli_cmd_profile, cli_cmd_plan;

#endif
