/* SPDX-License-Identifier: Apache-2.0
 *
 * Rounds as a drawing: the Trace Event Format, which ui.perfetto.dev and chrome://tracing read.
 * Simulated rounds and real ones are drawn by the same code.
 */
#ifndef ATSI_CLI_TRACE_H
#define ATSI_CLI_TRACE_H

#include "atsinfer/simulate.h"
#include "cli/cli.h"

struct cli_trace;

/* simulated: said in the file, and times stay as they are; else they begin at 0.  NULL: out of
 * memory. */
struct cli_trace *cli_trace_new(bool simulated);
void cli_trace_free(struct cli_trace *t); /* NULL is allowed */
/* What follows is of this policy or session: a process of the drawing. */
void cli_trace_process(struct cli_trace *t, const char *name);
/* An atsi_span_fn, with a struct cli_trace as its context.  The newest rounds are kept, as many as
 * have CLI_TRACE_SPANS spans. */
#define CLI_TRACE_SPANS 100000u
void cli_trace_span(void *trace, const struct atsi_sim_span *span);
/* Rounds that are drawn, and older ones that were let go. */
size_t cli_trace_rounds(const struct cli_trace *t);
size_t cli_trace_cut(const struct cli_trace *t);
/* An exit code; prints what went wrong. */
int cli_trace_write(struct cli_trace *t, const char *path);

#endif
