/* SPDX-License-Identifier: Apache-2.0
 * Opening sessions for the subcommands. */
#include "cli/session.h"

#include "cli/options.h"
#include "cli/profile.h"
#include "cli/trace.h"

#include "atsinfer/routing.h"

#include <string.h>
#include <unistd.h>

const char *cli_trace_path;
static struct cli_trace *drawing;

static int draw(struct atsi_session *s, const char *label)
{
    if (cli_trace_path == NULL)
        return CLI_OK;
    if (drawing == NULL)
        drawing = cli_trace_new(false);
    if (drawing == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    cli_trace_process(drawing, label);
    atsi_session_spans(s, cli_trace_span, drawing);
    return CLI_OK;
}

/* ---------------------------------------------------------------- --routing-trace */
const char *cli_routing_path;
static struct atsi_routing_watch *watching;

bool cli_routing_prepare(void)
{
    return cli_routing_path == NULL || cli_override("backend.accel", "none");
}

static int watch(struct atsi_session *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    int rc = ATSI_OK;
    if (cli_routing_path == NULL)
        return CLI_OK;
    if (watching == NULL)
        rc = atsi_routing_watch_open(&watching, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    atsi_session_trace(s, atsi_routing_watch, watching);
    return CLI_OK;
}

static int write_routing(void)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_routing *r = NULL;
    const char *model = cli_option_value("model.path");
    int rc = atsi_routing_watch_take(watching, model != NULL ? model : "", &r, &err);
    if (rc == ATSI_OK)
        rc = atsi_routing_write(r, cli_routing_path, &err);
    atsi_routing_free(r);
    return rc == ATSI_OK ? CLI_OK : cli_fail(cli_exit_code(rc), "--routing-trace: %s", err.msg);
}

int cli_session_open(struct atsi_model *m, const struct atsi_session_params *params,
                     const char *label, struct atsi_session **out)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct profile_bar bar = {.terminal = isatty(STDERR_FILENO) != 0};
    struct atsi_err err = ATSI_ERR_INIT;
    int rc, code;
    if (params != NULL)
        p = *params;
    p.cancel = &cli_interrupted;
    if (bar.terminal && cli_common.level >= ATSI_LOG_WARN) {
        p.measuring = profile_show_progress;
        p.measuring_ctx = &bar;
    }
    rc = atsi_session_open(m, &p, out, &err);
    if (rc != ATSI_OK)
        return cli_fail_status(rc, &err);
    code = draw(*out, label);
    if (code == CLI_OK)
        code = watch(*out);
    if (code == CLI_OK)
        return CLI_OK;
    atsi_session_close(*out);
    *out = NULL;
    return code;
}

int cli_session_finish(int code)
{
    int written = CLI_OK;
    if (drawing != NULL && (code == CLI_OK || code == CLI_INTERRUPTED)) {
        written = cli_trace_write(drawing, cli_trace_path);
        if (written == CLI_OK && cli_trace_rounds(drawing) == 0)
            cli_warn("--trace %s: no accelerator computed a round; there is nothing to draw",
                     cli_trace_path);
        if (written == CLI_OK && cli_trace_cut(drawing) > 0)
            cli_warn("--trace %s: the last %zu rounds; %zu older ones are left out", cli_trace_path,
                     cli_trace_rounds(drawing), cli_trace_cut(drawing));
    }
    cli_trace_free(drawing);
    drawing = NULL;
    if (watching != NULL && written == CLI_OK && (code == CLI_OK || code == CLI_INTERRUPTED))
        written = write_routing();
    atsi_routing_watch_close(watching);
    watching = NULL;
    return written != CLI_OK ? written : code;
}
