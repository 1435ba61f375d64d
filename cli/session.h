/* SPDX-License-Identifier: Apache-2.0
 * Sessions as the subcommands open them: costs measured at first use are shown, --trace is obeyed,
 * and what an accelerator did is summed up. */
#ifndef ATSI_CLI_SESSION_H
#define ATSI_CLI_SESSION_H

#include "cli/cli.h"

extern const char *cli_trace_path;
#define CLI_TRACE_OPTION                                                                           \
    {                                                                                              \
        .name = "--trace", .arg = "FILE",                                                          \
        .help = "draw the rounds with an accelerator: JSON for ui.perfetto.dev",                   \
        .text = &cli_trace_path                                                                    \
    }

extern const char *cli_routing_path;
#define CLI_ROUTING_OPTION                                                                         \
    {                                                                                              \
        .name = "--routing-trace", .arg = "FILE",                                                  \
        .help = "keep which experts each token used, for `simulate --routing`; all is computed "   \
                "on the CPU then",                                                                 \
        .text = &cli_routing_path                                                                  \
    }
/* With --routing-trace: no accelerator.  Before the runtime is opened; false: a message was
 * printed. */
bool cli_routing_prepare(void);

/* params may be NULL; label: of the session in the drawing.  An exit code; prints what went wrong.
 */
int cli_session_open(struct atsi_model *m, const struct atsi_session_params *params,
                     const char *label, struct atsi_session **out);
/* After the last session is closed: writes the drawing and the routing trace if asked for and
 * `code` is CLI_OK or CLI_INTERRUPTED.  Returns `code`, or that of writing. */
int cli_session_finish(int code);

/* ---- summary.c */
/* What an accelerator did, on stderr; nothing without one. */
void cli_print_accel(const struct atsi_session *s);
/* The same words of numbers that came from elsewhere; one phase's rounds are all measured when
 * n_measured is n_rounds. */
void cli_put_accel_stats(FILE *f, const struct atsi_accel_stats *stats);

#endif
