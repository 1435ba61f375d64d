/* SPDX-License-Identifier: Apache-2.0
 * How `atsinfer plan` names and groups items, the same in text, JSON and pictures. */
#include "cli/plan.h"

#include "atsinfer/graph.h"

#include <ctype.h>
#include <fnmatch.h>
#include <stdlib.h>
#include <string.h>

const char *plan_role(uint32_t role)
{
    static const char *const names[] = {
        "other",   "embedding", "attention weights", "attention",    "ffn", "router",
        "experts", "head",      "recurrent",         "shared expert"};
    return role < sizeof names / sizeof names[0] ? names[role] : "other";
}

const char *plan_reason(uint32_t reason)
{
    static const char *const names[ATSI_PLAN_N_REASONS] = {
        "pinned by a rule",          "faster on the GPU", "saves changes of sides",
        "no faster on the GPU",      "streamed instead",  "larger than what is left",
        "not chosen, though it fits"};
    return reason < ATSI_PLAN_N_REASONS ? names[reason] : "?";
}

const char *plan_limit(uint32_t limit)
{
    static const char *const names[ATSI_PLAN_N_LIMITS] = {
        "nothing",
        "memory reads of the CPU",
        "arithmetic of the CPU",
        "memory reads of the GPU",
        "arithmetic of the GPU",
        "the link (weight transfers)",
        "host memory bandwidth (CPU and transfers together)"};
    return limit < ATSI_PLAN_N_LIMITS ? names[limit] : "?";
}

const char *plan_decision(const struct atsi_plan_item *it)
{
    if (it->device != 0)
        return "resident";
    if (it->promoted[0] != 0 && it->promoted[1] != 0)
        return "host, promoted in both phases";
    if (it->promoted[0] != 0)
        return "host, promoted in prefill";
    return it->promoted[1] != 0 ? "host, promoted in decode" : "host";
}

static const char *after_number(const char *s, int32_t layer)
{
    char *end;
    if (!isdigit((unsigned char)*s) || strtol(s, &end, 10) != layer || *end != '.')
        return NULL;
    return end + 1;
}

void plan_short_name(const struct atsi_plan_item *it, char out[64])
{
    static const char tail[] = ".weight";
    const char *name = it->name, *rest = NULL;
    char *cut, suffix[16];
    if (strncmp(name, "blk.", 4) == 0)
        rest = after_number(name + 4, it->layer);
    else if (name[0] == 'L')
        rest = after_number(name + 1, it->layer);
    (void)snprintf(out, 64, "%s", rest != NULL ? rest : name);
    (void)snprintf(suffix, sizeof suffix, "-%d", it->layer);
    cut = strrchr(out, '-');
    if (cut != NULL && strcmp(cut, suffix) == 0) /* values of graphs: "kqv_out-7" */
        *cut = '\0';
    cut = strstr(out, tail);
    if (cut != NULL) /* what follows, the number of a tile, stays */
        memmove(cut, cut + sizeof tail - 1, strlen(cut + sizeof tail - 1) + 1);
}

bool plan_explained(const struct plan_show *v, const struct atsi_plan_item *it)
{
    return v->explain != NULL && fnmatch(v->explain, it->name, 0) == 0;
}

double plan_ms(uint64_t ns)
{
    return (double)ns / 1e6;
}

double plan_mib(uint64_t bytes)
{
    return (double)bytes / 1048576.0;
}

double plan_percent(uint64_t part, uint64_t whole)
{
    return whole > 0 ? 100.0 * (double)part / (double)whole : 0.0;
}

/* ---------------------------------------------------------------- rows */
static bool same_item(const struct atsi_plan_item *a, const struct atsi_plan_item *b)
{
    char x[64], y[64];
    if (a->bytes != b->bytes || a->device != b->device || a->reason != b->reason ||
        a->role != b->role || a->pinned != b->pinned)
        return false;
    for (int f = 0; f < 2; f++)
        if (a->promoted[f] != b->promoted[f] || a->cpu_ns[f] != b->cpu_ns[f] ||
            a->gpu_ns[f] != b->gpu_ns[f] || a->transfer_ns[f] != b->transfer_ns[f])
            return false;
    plan_short_name(a, x);
    plan_short_name(b, y);
    return strcmp(x, y) == 0;
}

static bool same_row(const struct plan_show *v, const struct plan_row *a, const struct plan_row *b)
{
    if (a->n != b->n)
        return false;
    for (uint32_t k = 0; k < a->n; k++)
        if (!same_item(atsi_plan_item(v->report, a->first + k),
                       atsi_plan_item(v->report, b->first + k)))
            return false;
    return true;
}

bool plan_find_rows(struct plan_show *v)
{
    uint32_t n = v->sum->n_items;
    v->n_rows = 0;
    v->rows = calloc((size_t)n + 1, sizeof *v->rows);
    if (v->rows == NULL)
        return false;
    for (uint32_t i = 0; i < n; i++) {
        struct plan_row *row = &v->rows[v->n_rows];
        int32_t layer = atsi_plan_item(v->report, i)->layer;
        if (i > 0 && layer == atsi_plan_item(v->report, i - 1)->layer) {
            row[-1].n++;
            continue;
        }
        *row = (struct plan_row){.first = i, .n = 1};
        v->n_rows++;
    }
    for (uint32_t k = 0; k < v->n_rows; k++) {
        uint32_t j = 0;
        while (j < k && (v->rows[j].like != j || !same_row(v, &v->rows[j], &v->rows[k])))
            j++;
        v->rows[k].like = j;
        v->rows[j].same++;
    }
    return true;
}
