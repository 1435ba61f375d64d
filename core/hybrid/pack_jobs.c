/* SPDX-License-Identifier: Apache-2.0
 *
 * Which tensors are packed, in what order, and from where.
 */
#include "core/hybrid/pack_jobs.h"

#include <stdlib.h>
#include <string.h>

/* ---------------------------------------------------------------- which */
uint32_t atsi_pack_mode_read(const struct atsi_conf *c)
{
    const char *mode = atsi_conf_get(c, "load.pack");
    if (strcmp(mode, "off") == 0)
        return ATSI_PACK_OFF;
    return strcmp(mode, "now") == 0 ? ATSI_PACK_NOW : ATSI_PACK_AUTO;
}

bool atsi_pack_fits(const struct atsi_tensor *t)
{
    return t->data != NULL && t->layout == ATSI_LAYOUT_ROWS && t->n_dims >= 2 &&
           t->ne[1] >= ATSI_PANEL_ROWS && atsi_panel_bytes(t->type, t->ne[0]) > 0 &&
           t->row_bytes == atsi_row_bytes(t->type, t->ne[0]);
}

/* Does the backend take the op with its k-th weight as panels? */
static bool reads_panels(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                         const struct atsi_op *op, int k)
{
    struct atsi_tensor panels = *op->weight[k];
    struct atsi_op asked = *op;
    panels.layout = ATSI_LAYOUT_PANELS;
    asked.weight[k] = &panels;
    return atsi_pack_fits(op->weight[k]) && ops->supports(be, &asked) == 1;
}

void atsi_pack_mark(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                    const struct atsi_op *const *list, uint32_t n_ops, struct atsi_weights *w,
                    uint8_t *packable)
{
    uint32_t n = atsi_weights_count(w);
    uint8_t *used = calloc((size_t)n + 1, 1);
    if (used == NULL) { /* then nothing is packed */
        memset(packable, 0, n);
        return;
    }
    (void)atsi_weights_begin(w);
    for (uint32_t i = 0; i < n_ops; i++)
        for (int k = 0; k < 2; k++)
            for (uint32_t t = 0; list[i]->weight[k] != NULL && t < n; t++)
                if (list[i]->weight[k]->name == atsi_weights_tensor(w, t)->name) {
                    used[t] = 1;
                    packable[t] = packable[t] != 0 && reads_panels(ops, be, list[i], k);
                }
    for (uint32_t t = 0; t < n; t++)
        packable[t] = packable[t] != 0 && used[t] != 0;
    atsi_weights_end(w);
    free(used);
}

/* ---------------------------------------------------------------- from where */
void atsi_pack_job_aim(struct atsi_pack_job *j, uint32_t source)
{
    j->source = source;
    j->next = j->sum = 0;
    j->step = 1;
    if (source == ATSI_PACK_FROM_CACHE) {
        j->parts = (j->bytes + ATSI_PACK_PART - 1) / ATSI_PACK_PART;
    } else {
        uint64_t one = atsi_panel_bytes(j->m.type, j->m.elems);
        j->panels = j->place;
        j->parts = atsi_panel_parts(&j->m);
        if (one > 0 && one < ATSI_PACK_PART)
            j->step = ATSI_PACK_PART / one;
    }
    j->left = j->parts;
}

/* One panel from the middle, packed from the model at hand: a cache of other weights, or packed in
 * another way, shows. */
static bool is_ours(const struct atsi_pack_job *j)
{
    uint64_t n_panels = atsi_panel_count(j->m.rows), one = atsi_panel_bytes(j->m.type, j->m.elems);
    uint64_t at = n_panels / 2 * one;
    void *panel = one > 0 && n_panels > 0 ? malloc((size_t)one) : NULL;
    bool same = false;
    if (panel != NULL) {
        atsi_panel_pack(j->m.type, j->m.elems, j->rows + at, one / ATSI_PANEL_ROWS, 1, panel);
        same = memcmp(panel, j->panels + at, (size_t)one) == 0;
    }
    free(panel);
    return same;
}

/* ---------------------------------------------------------------- the list */
/* Packable tensors that nobody else packs, in the order of their first use; announced. */
static uint32_t list_tensors(const struct atsi_pack_params *p, uint32_t *list, uint8_t *seen)
{
    const struct atsi_graph *g;
    struct atsi_err ignored = ATSI_ERR_INIT;
    uint32_t total = atsi_weights_count(p->weights), n = 0;
    if (atsi_model_graph(p->model, &g, &ignored) != ATSI_OK)
        return 0;
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < 2; k++) {
            int32_t t = g->nodes[i]->weight[k];
            if (t < 0 || (uint32_t)t >= total || p->packable[t] == 0 || seen[t] != 0)
                continue;
            seen[t] = 1;
            if (atsi_pack_fits(atsi_weights_tensor(p->weights, (uint32_t)t)) &&
                atsi_weights_announce(p->weights, (uint32_t)t))
                list[n++] = (uint32_t)t;
        }
    return n;
}

static void set_job(struct atsi_pack_jobs *q, const struct atsi_weights *w, uint32_t tensor,
                    void *place)
{
    const struct atsi_tensor *t = atsi_weights_tensor(w, tensor);
    const struct atsi_piece whole = {.tensor = tensor};
    const struct atsi_pack_entry *e = q->cache != NULL ? atsi_pack_cache_find(q->cache, t) : NULL;
    struct atsi_pack_job *j = &q->job[q->n++];
    *j = (struct atsi_pack_job){.tensor = tensor,
                                .as_file = *t,
                                .m = {t->type, t->ne[0], t->ne[1], t->ne[2] * t->ne[3]},
                                .rows = t->data,
                                .place = place,
                                .bytes = atsi_piece_bytes(w, &whole)};
    if (e != NULL) {
        j->panels = q->cache->map + e->offset;
        j->hash = e->hash;
    }
    atsi_pack_job_aim(j, e != NULL && is_ours(j) ? ATSI_PACK_FROM_CACHE : ATSI_PACK_FROM_ROWS);
    q->bytes += j->bytes;
}

static void open_cache(struct atsi_pack_jobs *q, const struct atsi_pack_params *p)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_pack_cache *c = p->cache ? calloc(1, sizeof *c) : NULL;
    if (c == NULL)
        return;
    if (atsi_pack_cache_open(c, p->model, &err) != ATSI_OK) {
        atsi_log(p->log, ATSI_LOG_WARN, "memory", "no cache of packed weights: %s", err.msg);
        free(c);
        return;
    }
    if (c->map != NULL && atsi_weights_keep(p->weights, c->map, c->map_bytes) != ATSI_OK)
        atsi_pack_cache_close(c);
    q->cache = c;
}

struct lists {
    uint32_t *tensors; /* [n] to pack, in order */
    uint8_t *seen;     /* [all tensors] */
    void **at;         /* [n] places */
    uint32_t n;
};

/* Views stay as they are meanwhile. */
static int fill_jobs(struct atsi_pack_jobs *q, const struct atsi_pack_params *p, struct lists *l,
                     struct atsi_err *err)
{
    int rc = ATSI_OK;
    l->n = list_tensors(p, l->tensors, l->seen);
    if (l->n == 0)
        return ATSI_OK;
    open_cache(q, p);
    rc = atsi_weights_reserve(p->weights, l->tensors, l->n, l->at, err);
    for (uint32_t k = 0; k < l->n; k++)
        if (rc == ATSI_OK)
            set_job(q, p->weights, l->tensors[k], l->at[k]);
        else
            atsi_weights_discard(p->weights, l->tensors[k]);
    return rc;
}

int atsi_pack_jobs_open(struct atsi_pack_jobs *q, const struct atsi_pack_params *p,
                        struct atsi_err *err)
{
    size_t n = (size_t)atsi_weights_count(p->weights) + 1;
    struct lists l = {.tensors = malloc(n * sizeof *l.tensors),
                      .seen = calloc(n, 1),
                      .at = calloc(n, sizeof(void *))};
    int rc = ATSI_ENOMEM;
    *q = (struct atsi_pack_jobs){.job = calloc(n, sizeof *q->job)};
    if (l.tensors != NULL && l.seen != NULL && l.at != NULL && q->job != NULL) {
        (void)atsi_weights_begin(p->weights);
        rc = fill_jobs(q, p, &l, err);
        atsi_weights_end(p->weights);
    } else {
        (void)atsi_fail(err, rc, "out of memory for packing");
    }
    free(l.at);
    free(l.seen);
    free(l.tensors);
    return rc;
}

void atsi_pack_jobs_close(struct atsi_pack_jobs *q, struct atsi_weights *w)
{
    for (uint32_t k = 0; k < q->n; k++)
        if (!q->job[k].done)
            atsi_weights_discard(w, q->job[k].tensor);
    free(q->cache); /* its mapping is the weights' */
    free(q->job);
    *q = (struct atsi_pack_jobs){0};
}
