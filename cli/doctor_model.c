/* SPDX-License-Identifier: Apache-2.0
 *
 * What `atsinfer doctor` finds out about the model that is named: whether it opens, what a session
 * would allocate, and whether all of it stays in memory. */
#include <stdlib.h>
#include <string.h>

#include "cli/doctor.h"
#include "cli/resolve.h"

/* Code, tables and allocator overhead of the program itself. */
#define PROGRAM_BYTES (UINT64_C(150) << 20)

static int check_cancel(void *ctx, uint64_t done_bytes, uint64_t total_bytes)
{
    (void)ctx;
    (void)done_bytes;
    (void)total_bytes;
    return cli_interrupted;
}

static void add_failure(struct doctor *d, const char *topic, int status, const struct atsi_err *err)
{
    int code = cli_exit_code(status);
    struct finding *f = doctor_problem(d, code, topic);
    machine_add(&f->text, "%s", err->msg[0] != '\0' ? err->msg : atsi_strerror(status));
}

/* Weights in a mapping can be read from the file again, so they need not all stay; but then every
 * token waits for the disk. */
static void check_fit(struct doctor *d, const struct atsi_loaded_info *info,
                      const struct atsi_session_info *s)
{
    uint64_t available = atsi_runtime_topo(d->rt)->mem_available_bytes;
    uint64_t need = info->mapped_bytes + info->owned_bytes + s->kv_bytes + s->compute_bytes +
                    s->logits_bytes + PROGRAM_BYTES;
    char a[32], b[32];
    struct finding *f = doctor_add(d, need <= available ? FINDING_OK : FINDING_NOTE, "fit");
    machine_add(&f->text, "needs %s of memory, %s available", cli_bytes(need, a),
                cli_bytes(available, b));
    if (need > available)
        machine_add(&f->todo, "weights will be read from disk again and again: free memory, lower "
                              "-c, or choose a smaller quantization");
}

static void check_session(struct doctor *d, struct atsi_model *m)
{
    static const struct atsi_session_params params = ATSI_SESSION_PARAMS_INIT;
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s = NULL;
    struct atsi_session_info i = {.struct_size = sizeof i};
    char kv[32], compute[32], logits[32];
    int rc = atsi_session_open(m, &params, &s, &err);
    if (rc != ATSI_OK) {
        add_failure(d, "session", rc, &err);
        return;
    }
    atsi_session_info(s, &i);
    struct finding *f = doctor_add(d, FINDING_OK, "backend");
    machine_add(&f->text, "%s (%s), %s", i.backend, i.detail, i.chosen);
    f = doctor_add(d, FINDING_OK, "session");
    machine_add(&f->text, "context %u: KV cache %s, buffers %s, logits %s; chunk %u", i.n_ctx,
                cli_bytes(i.kv_bytes, kv), cli_bytes(i.compute_bytes, compute),
                cli_bytes(i.logits_bytes, logits), i.chunk);
    check_fit(d, atsi_model_info(m), &i);
    atsi_session_close(s);
}

static void check_opened(struct doctor *d, struct atsi_model *m, const char *path)
{
    const struct atsi_loaded_info *info = atsi_model_info(m);
    char bytes[32];
    struct finding *f = doctor_add(d, FINDING_OK, "model");
    machine_add(&f->text, "%s: %s, %s, %s in %u file%s", path, info->format,
                info->arch[0] != '\0' ? info->arch : "no architecture",
                cli_bytes(info->file_bytes, bytes), info->n_files, info->n_files == 1 ? "" : "s");
    check_session(d, m);
}

/* The file that the name stands for; a name that no cache has is a finding. */
static bool find_file(struct doctor *d, const char *name, char path[PATH_MAX])
{
    char *why = NULL;
    size_t n;
    FILE *say = open_memstream(&why, &n);
    int rc = say != NULL ? cli_resolve(name, path, say) : ATSI_ENOMEM;
    if (say != NULL && fclose(say) != 0)
        rc = ATSI_ENOMEM;
    if (rc != ATSI_OK) {
        struct finding *f = doctor_problem(d, CLI_USAGE, "model");
        machine_add(&f->text, "%s", rc == ATSI_ENOMEM ? "out of memory" : why);
    }
    free(why);
    return rc == ATSI_OK;
}

void doctor_check_model(struct doctor *d)
{
    const char *name = atsi_runtime_conf(d->rt, "model.path");
    char path[PATH_MAX];
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_model *m = NULL;
    struct atsi_model_params p = {.struct_size = sizeof p, .progress = check_cancel};
    struct finding *f;
    int rc;
    if (name == NULL || name[0] == '\0') {
        f = doctor_add(d, FINDING_OK, "model");
        machine_add(&f->text, "none named; `atsinfer doctor -m FILE` checks one");
        return;
    }
    if (!find_file(d, name, path))
        return;
    rc = atsi_model_open(d->rt, path, &p, &m, &err);
    if (rc != ATSI_OK) {
        add_failure(d, "model", rc, &err);
        return;
    }
    check_opened(d, m, path);
    atsi_model_close(m);
}
