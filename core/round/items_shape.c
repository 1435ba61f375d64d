/* SPDX-License-Identifier: Apache-2.0
 *
 * Items of a shape file: the operators of a transformer by its hyperparameters, as a chain.  For
 * models nobody has at hand, and for the published tables, which were computed on these shapes.
 */
#include "core/round/items.h"

#include "core/round/number_file.h"

#include <string.h>

struct shape {
    char name[96], format[96];
    double layers, hidden, heads, kv_heads, head_dim, ffn, vocab, attn_bpw, ffn_bpw, head_bpw;
    double experts, topk, expert_ffn, shared_ffn, q_gate, full_interval;
    double lin_k_heads, lin_v_heads, lin_head_dim;
};

#define NUMBER(NAME, REQUIRED, DEF, MIN, MAX)                                                      \
    {                                                                                              \
        .name = #NAME, .offset = offsetof(struct shape, NAME), .required = (REQUIRED),             \
        .def = (DEF), .min = (MIN), .max = (MAX)                                                   \
    }
#define TEXT(NAME)                                                                                 \
    {                                                                                              \
        .name = #NAME, .offset = offsetof(struct shape, NAME), .text = true, .required = true      \
    }

static const struct atsi_number_key keys[] = {
    TEXT(name),
    TEXT(format),
    NUMBER(layers, true, 0, 1, 512),
    NUMBER(hidden, true, 0, 1, 131072),
    NUMBER(heads, true, 0, 1, 1024),
    NUMBER(kv_heads, true, 0, 1, 1024),
    NUMBER(head_dim, true, 0, 1, 1024),
    NUMBER(ffn, false, 0, 0, 4194304),
    NUMBER(vocab, true, 0, 1, 16777216),
    NUMBER(attn_bpw, true, 0, 0.5, 64),
    NUMBER(ffn_bpw, true, 0, 0.5, 64),
    NUMBER(head_bpw, true, 0, 0.5, 64),
    NUMBER(experts, false, 0, 0, 1024),
    NUMBER(topk, false, 0, 0, 1024),
    NUMBER(expert_ffn, false, 0, 0, 4194304),
    NUMBER(shared_ffn, false, 0, 0, 4194304),
    NUMBER(q_gate, false, 0, 0, 1),
    NUMBER(full_interval, false, 1, 1, 512),
    NUMBER(lin_k_heads, false, 0, 0, 1024),
    NUMBER(lin_v_heads, false, 0, 0, 1024),
    NUMBER(lin_head_dim, false, 0, 0, 1024),
};

#define ITEMS_PER_LAYER 12u
#define NAME_ROOM 32u

struct maker {
    const struct shape *s;
    struct atsi_items *it;
    uint32_t n, type;
    int32_t layer, router;
};

static struct atsi_work *add(struct maker *m, const char *name, uint32_t role)
{
    char *text = m->it->names + (size_t)m->n * NAME_ROOM;
    struct atsi_item *item = &m->it->items[m->n];
    struct atsi_work *w = &m->it->work[m->n];
    (void)snprintf(text, NAME_ROOM, "L%d.%s", m->layer, name);
    item->name = text;
    item->role = role;
    item->layer = m->layer;
    *w = (struct atsi_work){.type = ATSI_TYPE_COUNT};
    m->n++;
    return w;
}

static void matrix(struct maker *m, const char *name, uint32_t role, double in, double out,
                   double bits)
{
    struct atsi_work *w = add(m, name, role);
    w->type = m->type;
    w->in = (uint64_t)in;
    w->out = (uint64_t)out;
    w->weight_bytes = (uint64_t)(in * out * bits / 8.0);
    m->it->items[m->n - 1].can_promote = role != ATSI_ROLE_ROUTER;
}

static void experts(struct maker *m, const char *name, double in, double out, bool own_inputs)
{
    const struct shape *s = m->s;
    struct atsi_work *w;
    matrix(m, name, ATSI_ROLE_EXPERT, in, out, s->ffn_bpw);
    w = &m->it->work[m->n - 1];
    w->kind = ATSI_WORK_EXPERTS;
    w->weight_bytes = (uint64_t)(in * out * s->ffn_bpw / 8.0 * s->experts);
    w->n_expert = (uint32_t)s->experts;
    w->n_used = (uint32_t)s->topk;
    w->own_inputs = own_inputs;
    m->it->items[m->n - 1].n_experts = w->n_expert;
    m->it->items[m->n - 1].router = m->router;
}

static void full_attention(struct maker *m)
{
    const struct shape *s = m->s;
    double q = s->heads * s->head_dim, kv = s->kv_heads * s->head_dim;
    struct atsi_work *w;
    matrix(m, "q", ATSI_ROLE_ATTN_PROJ, s->hidden, q * (s->q_gate != 0 ? 2 : 1), s->attn_bpw);
    matrix(m, "k", ATSI_ROLE_ATTN_PROJ, s->hidden, kv, s->attn_bpw);
    matrix(m, "v", ATSI_ROLE_ATTN_PROJ, s->hidden, kv, s->attn_bpw);
    w = add(m, "attn", ATSI_ROLE_ATTN);
    w->kind = ATSI_WORK_ATTENTION;
    w->cell_bytes = (uint64_t)(2 * kv * 2); /* keys and values in half precision */
    w->in_width = (uint64_t)(q + 2 * kv);
    w->flops_per_pair = 4.0 * q;
    matrix(m, "o", ATSI_ROLE_ATTN_PROJ, q, s->hidden, s->attn_bpw);
}

static void linear_attention(struct maker *m)
{
    const struct shape *s = m->s;
    double d = s->lin_head_dim, k = s->lin_k_heads, v = s->lin_v_heads;
    struct atsi_work *w;
    matrix(m, "qkvz", ATSI_ROLE_ATTN_PROJ, s->hidden, d * (2 * k + 2 * v), s->attn_bpw);
    w = add(m, "delta", ATSI_ROLE_RECURRENT);
    w->kind = ATSI_WORK_RECURRENT;
    w->state_bytes = (uint64_t)(v * d * d * 4);
    w->flops_per_token = 8.0 * v * d * d;
    w->in_width = (uint64_t)(d * (2 * k + v));
    matrix(m, "lo", ATSI_ROLE_ATTN_PROJ, v * d, s->hidden, s->attn_bpw);
}

static void feed_forward(struct maker *m)
{
    const struct shape *s = m->s;
    if (s->experts == 0) {
        matrix(m, "gate", ATSI_ROLE_FFN, s->hidden, s->ffn, s->ffn_bpw);
        matrix(m, "up", ATSI_ROLE_FFN, s->hidden, s->ffn, s->ffn_bpw);
        matrix(m, "down", ATSI_ROLE_FFN, s->ffn, s->hidden, s->ffn_bpw);
        return;
    }
    m->router = (int32_t)m->n;
    matrix(m, "router", ATSI_ROLE_ROUTER, s->hidden, s->experts, 32.0);
    if (s->shared_ffn > 0) {
        matrix(m, "sh_gate", ATSI_ROLE_SHARED_EXPERT, s->hidden, s->shared_ffn, s->ffn_bpw);
        matrix(m, "sh_up", ATSI_ROLE_SHARED_EXPERT, s->hidden, s->shared_ffn, s->ffn_bpw);
        matrix(m, "sh_down", ATSI_ROLE_SHARED_EXPERT, s->shared_ffn, s->hidden, s->ffn_bpw);
    }
    experts(m, "gate_exps", s->hidden, s->expert_ffn, false);
    experts(m, "up_exps", s->hidden, s->expert_ffn, false);
    experts(m, "down_exps", s->expert_ffn, s->hidden, true);
}

static void all_items(struct maker *m)
{
    const struct shape *s = m->s;
    uint32_t layers = (uint32_t)s->layers, interval = (uint32_t)s->full_interval;
    for (uint32_t l = 0; l < layers; l++) {
        m->layer = (int32_t)l;
        if ((l + 1) % interval == 0)
            full_attention(m);
        else
            linear_attention(m);
        feed_forward(m);
    }
    m->layer = (int32_t)layers;
    matrix(m, "head", ATSI_ROLE_HEAD, s->hidden, s->vocab, s->head_bpw);
    m->it->work[m->n - 1].last_only = true;
}

static void chain_edges(struct atsi_items *it)
{
    struct atsi_demand d;
    it->chain = true;
    it->n_edges = it->n - 1;
    for (uint32_t i = 1; i < it->n; i++) {
        atsi_work_demand(&it->work[i], 1, 0, 1, &d);
        it->edges[i - 1] = (struct atsi_edge){i - 1, i, (uint64_t)d.in_bytes};
    }
}

static int check(const char *path, const struct shape *s, uint32_t *type_out, struct atsi_err *err)
{
    if (strcmp(s->format, "q4") == 0)
        *type_out = ATSI_TYPE_Q4_K;
    else if (strcmp(s->format, "fp16") == 0)
        *type_out = ATSI_TYPE_F16;
    else if (strcmp(s->format, "mxfp4") == 0)
        *type_out = ATSI_TYPE_MXFP4;
    else
        return atsi_fail(err, ATSI_ECONF, "%s: format \"%s\": expected q4, fp16 or mxfp4", path,
                         s->format);
    if (s->experts == 0 && s->ffn == 0)
        return atsi_fail(err, ATSI_ECONF, "%s: neither ffn nor experts", path);
    if (s->experts > 0 && (s->topk < 1 || s->topk > s->experts || s->expert_ffn < 1))
        return atsi_fail(err, ATSI_ECONF, "%s: %.0f experts need topk (1..%.0f) and expert_ffn",
                         path, s->experts, s->experts);
    if (s->full_interval > 1 && (s->lin_k_heads < 1 || s->lin_v_heads < 1 || s->lin_head_dim < 1))
        return atsi_fail(err, ATSI_ECONF,
                         "%s: full_interval %.0f needs lin_k_heads, lin_v_heads and lin_head_dim",
                         path, s->full_interval);
    return ATSI_OK;
}

int atsi_items_from_shape(const char *path, struct atsi_items **out, struct atsi_err *err)
{
    struct shape s = {.name = ""};
    struct maker m = {.s = &s, .router = -1};
    uint32_t room;
    int rc = atsi_number_file_read(path, "model", keys, sizeof keys / sizeof keys[0], &s, err);
    *out = NULL;
    if (rc == ATSI_OK)
        rc = check(path, &s, &m.type, err);
    if (rc != ATSI_OK)
        return rc;
    room = (uint32_t)s.layers * ITEMS_PER_LAYER + 1;
    m.it = atsi_items_new(room, room, (size_t)room * NAME_ROOM);
    if (m.it == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u items", room);
    all_items(&m);
    m.it->n = m.n;
    (void)snprintf(m.it->model, sizeof m.it->model, "%s", s.name);
    for (uint32_t i = 0; i < m.n; i++)
        m.it->n_params += m.it->work[i].in * m.it->work[i].out *
                          (m.it->work[i].n_expert != 0 ? m.it->work[i].n_expert : 1);
    chain_edges(m.it);
    *out = m.it;
    return ATSI_OK;
}
