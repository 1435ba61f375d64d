/* SPDX-License-Identifier: Apache-2.0
 *
 * Putting a hybrid session together: budget, items, operations, placement, and then the memory that
 * the placement needs.
 */
#include "core/govern/power.h"
#include "core/hybrid/inside.h"
#include "core/hybrid/pack.h"

#include <stdlib.h>
#include <string.h>

/* Logits of many rows at once are only wanted by tools that read them all. */
#define LOGITS_BYTES ((uint64_t)64 << 20)
#define MIN_OUT_ROWS 16u
/* A device that refuses memory is asked for so much of it again and again. */
#define SHRINK_NUM 3u
#define SHRINK_DEN 4u
#define MAX_TRIES 24
/* Probes of idle devices are worth this share of the device's memory, no more. */
#define PROBE_SHARE 16u

/* ---------------------------------------------------------------- sizes */
static uint64_t tensor_bytes(const struct atsi_tensor *t)
{
    uint64_t n = t->row_bytes;
    for (uint32_t d = 1; d < t->n_dims && d < 4; d++)
        n *= t->ne[d];
    return n;
}

static bool is_matrix(const struct atsi_graph_node *n, int k)
{
    return k == 0 &&
           (n->kind == ATSI_OP_EMBED || n->kind == ATSI_OP_MATMUL || n->kind == ATSI_OP_MATMUL_ID);
}

/* Every tensor of the graph once. */
static int sum_weights(struct atsi_hybrid *h, struct atsi_err *err)
{
    const struct atsi_graph *g = h->s->g;
    const struct atsi_loaded_info *info = atsi_model_info(h->s->model);
    uint8_t *seen = calloc((size_t)info->n_tensors_all + 1, 1);
    if (seen == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the sizes of weights");
    for (uint32_t i = 0; i < g->n_nodes; i++)
        for (int k = 0; k < 2; k++) {
            int32_t w = g->nodes[i]->weight[k];
            uint64_t bytes = w >= 0 ? tensor_bytes(info->tensors[w]) : 0;
            if (w < 0 || seen[w] != 0)
                continue;
            seen[w] = 1;
            h->sizes.n_wanted++;
            if (!is_matrix(g->nodes[i], k)) {
                h->sizes.always += bytes;
                continue;
            }
            h->sizes.weights += bytes;
            if (bytes > h->sizes.largest && g->nodes[i]->kind != ATSI_OP_EMBED)
                h->sizes.largest = bytes;
        }
    free(seen);
    return ATSI_OK;
}

static uint32_t out_rows(const struct atsi_session *s)
{
    uint64_t rows = LOGITS_BYTES / ((uint64_t)s->g->n_vocab * sizeof(float));
    if (rows < MIN_OUT_ROWS)
        rows = MIN_OUT_ROWS;
    return rows < s->chunk ? (uint32_t)rows : s->chunk;
}

int atsi_hybrid_make_budget(struct atsi_hybrid *h, struct atsi_err *err)
{
    size_t compute = 0;
    int rc;
    h->sizes = (struct atsi_budget_sizes){0};
    rc = sum_weights(h, err);
    if (rc == ATSI_OK)
        rc = atsi_values_measure(h->s->g, h->s->chunk, out_rows(h->s), &compute, err);
    h->may_probe = h->a.props.mem_free_bytes / PROBE_SHARE >= ATSI_PROBE_BYTES &&
                   strcmp(atsi_conf_get(h->s->rt->conf, "policy.costs"), "measured") == 0 &&
                   atsi_power_probes(atsi_power_mode(h->s->rt->conf));
    h->sizes.compute = compute + (h->may_probe ? ATSI_PROBE_BYTES : 0);
    h->sizes.caches = h->s->kv_bytes + h->s->state_bytes;
    if (rc == ATSI_OK)
        rc = atsi_budget_make(&h->conf, &h->a.props, &h->sizes, &h->budget, err);
    return rc == ATSI_ENOFIT ? ATSI_ENOMEM : rc; /* an accelerator too small is none */
}

/* What this session holds of the device: another budget may use it again. */
static uint64_t held(const struct atsi_hybrid *h)
{
    struct atsi_region_state r = {0};
    if (h->region != NULL)
        atsi_region_state(h->region, &r);
    return h->values.bytes + h->state.bytes[ATSI_DEVICE_ACCEL] + r.committed +
           (h->prober != NULL ? ATSI_PROBE_BYTES : 0);
}

/* ---------------------------------------------------------------- items and operations */
static int make_items(struct atsi_hybrid *h, struct atsi_err *err)
{
    const struct atsi_session *s = h->s;
    struct atsi_items_params p = {
        .tile_bytes = h->budget.tile, .type_k = s->type_k, .type_v = s->type_v, .flow = true};
    const struct atsi_tensor *const *tensors = atsi_model_info(s->model)->tensors;
    int rc = atsi_items_from_graph(s->g, tensors, &p, &h->items, err);
    if (rc == ATSI_OK && !atsi_source_can_tile(s, &h->a, h->items)) {
        atsi_items_free(h->items);
        h->items = NULL;
        p.tile_bytes = 0;
        rc = atsi_items_from_graph(s->g, tensors, &p, &h->items, err);
    }
    return rc;
}

static int open_values(struct atsi_hybrid *h, struct atsi_err *err)
{
    int rc = atsi_values_open(&h->values, h->s->g, &h->a, h->s->chunk, out_rows(h->s), err);
    if (rc == ATSI_OK)
        rc = atsi_model_weights(h->s->model, &h->weights, err);
    atsi_state_describe(h->s);
    return rc;
}

static int make_source(struct atsi_hybrid *h, struct atsi_err *err)
{
    struct atsi_source_params p = {
        .s = h->s, .a = &h->a, .items = h->items, .values = &h->values, .weights = h->weights};
    int rc = atsi_source_open(&p, &h->source, err);
    if (rc != ATSI_OK)
        return rc;
    h->in_bytes = calloc((size_t)h->items->n + 1, sizeof *h->in_bytes);
    h->wants = calloc((size_t)atsi_source_max_wants(h->source) + 1, sizeof *h->wants);
    h->packable = malloc((size_t)atsi_weights_count(h->weights) + 1);
    if (h->in_bytes == NULL || h->wants == NULL || h->packable == NULL)
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for %u items", h->items->n);
    memset(h->packable, 1, atsi_weights_count(h->weights));
    atsi_source_packable(h->source, h->packable);
    return ATSI_OK;
}

struct atsi_hybrid_ask atsi_hybrid_ask_of(struct atsi_hybrid *h)
{
    struct atsi_hybrid_ask a = {.s = h->s,
                                .accel = &h->a,
                                .costs = &h->costs,
                                .items = h->items,
                                .source = h->source,
                                .budget = &h->budget,
                                .result_bytes =
                                    atsi_pick_bytes(atsi_source_pick(h->source), h->top)};
    size_t n = h->packable != NULL ? atsi_weights_count(h->weights) : 0;
    a.panels = atsi_pack_mode_read(h->s->rt->conf) != ATSI_PACK_OFF && n > 0 &&
               memchr(h->packable, 1, n) != NULL;
    return a;
}

/* ---------------------------------------------------------------- policies */
static void say(void *ctx, const char *text)
{
    const struct atsi_hybrid *h = ctx;
    atsi_log(h->s->rt->log, ATSI_LOG_WARN, "policy", "%s", text);
}

/* The policy a key names, or, when empty, policy.name's. */
int atsi_hybrid_find_policy(const struct atsi_hybrid *h, const char *key, bool required,
                            struct atsi_policy_use *out, struct atsi_err *err)
{
    const struct atsi_conf *c = h->s->rt->conf;
    out->name = atsi_conf_get(c, key);
    if (out->name == NULL || out->name[0] == '\0')
        out->name = atsi_conf_get(c, key = "policy.name");
    out->ops = atsi_registry_find(h->s->rt->registry, ATSI_KIND_POLICY, out->name);
    if (out->ops != NULL || !required)
        return ATSI_OK;
    return atsi_fail(err, ATSI_ECONF,
                     "%s = %.60s (%s): there is no such policy; `atsinfer plugins` "
                     "lists them",
                     key, out->name, atsi_conf_origin(c, key));
}

/* Against measured costs, classes that rounds leave alone are measured now and then. */
static const struct atsi_probe *open_probes(struct atsi_hybrid *h)
{
    struct atsi_err why = ATSI_ERR_INIT;
    int rc;
    if (h->costs.table == NULL || !h->may_probe)
        return NULL;
    if (h->prober != NULL) /* it stays under another budget */
        return atsi_prober_hook(h->prober);
    rc = atsi_prober_open(&h->costs.request, h->costs.table, &h->prober, &why);
    if (rc == ATSI_OK)
        return atsi_prober_hook(h->prober);
    h->prober = NULL;
    atsi_log(h->s->rt->log, ATSI_LOG_INFO, "costs", "idle devices are not measured: %s", why.msg);
    return NULL;
}

static int price(void *ctx, struct atsi_question *q, uint32_t phase, uint32_t tokens,
                 struct atsi_err *err)
{
    struct atsi_hybrid_ask a = atsi_hybrid_ask_of(ctx);
    a.tokens = tokens;
    return atsi_hybrid_price(&a, q, phase, err);
}

static int open_rounds(struct atsi_hybrid *h, struct atsi_err *err)
{
    const struct atsi_conf *c = h->s->rt->conf;
    struct atsi_hybrid_ask a = atsi_hybrid_ask_of(h);
    struct atsi_rounds_params p = {.time_limit_ns =
                                       (uint64_t)atsi_conf_int(c, "policy.time_limit") * 1000,
                                   .dynamic = atsi_conf_bool(c, "transfer.dynamic"),
                                   .lazy = true,
                                   .background = true,
                                   .say = say,
                                   .say_ctx = h,
                                   .price = price,
                                   .price_ctx = h};
    struct atsi_rounds_work w = {.source = {atsi_source_get(h->source), atsi_source_get(h->source)},
                                 .in_bytes = {h->in_bytes, h->in_bytes}};
    int rc = atsi_hybrid_find_policy(h, "policy.place", true, &p.place, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_find_policy(h, "policy.schedule", true, &p.schedule, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_find_policy(h, "policy.fallback", false, &p.fallback, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_question(&a, &h->question, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_ask_experts(h, err);
    if (rc == ATSI_OK)
        p.probe = open_probes(h);
    if (rc == ATSI_OK)
        rc = atsi_rounds_open(h->question, &h->a.d, &w, &p, &h->rounds, err);
    return rc == ATSI_OK ? atsi_hybrid_open_experts(h, &p.place, err) : rc;
}

/* ---------------------------------------------------------------- memory */
static uint64_t region_bytes(const struct atsi_hybrid *h, uint32_t n)
{
    uint64_t align = h->a.props.buf_align_bytes > ATSI_REGION_ALIGN ? h->a.props.buf_align_bytes
                                                                    : ATSI_REGION_ALIGN;
    uint64_t bytes = 0;
    for (uint32_t i = 0; i < n; i++)
        bytes += (atsi_piece_bytes(h->weights, &h->wants[i]) + align - 1) / align * align;
    return bytes;
}

/* Where the device has ranges of addresses: for whatever budget comes. */
static int open_region(struct atsi_hybrid *h, uint64_t place, struct atsi_err *err)
{
    const struct atsi_budget_sizes *z = &h->sizes;
    uint64_t most = h->budget.device_total; /* addresses cost nothing */
    if (most == 0)
        most = 2 * z->weights + z->always + h->budget.overhead + h->budget.slots;
    struct atsi_region_params p = {.ops = h->a.d.ops[ATSI_DEVICE_ACCEL],
                                   .be = h->a.d.be[ATSI_DEVICE_ACCEL],
                                   .tx_ops = h->a.d.tx_ops,
                                   .tx = h->a.d.tx,
                                   .channel = h->a.d.copy_engine,
                                   .weights = h->weights,
                                   .log = h->s->rt->log,
                                   .reserve_bytes = most,
                                   .slots_bytes = h->budget.slots,
                                   .place_bytes = place};
    return atsi_region_open(&p, &h->region, err);
}

int atsi_hybrid_fill_region(struct atsi_hybrid *h, struct atsi_region_change *change,
                            struct atsi_err *err)
{
    uint32_t n = atsi_source_wants(h->source, atsi_rounds_placement(h->rounds)->device, h->wants);
    uint64_t place = region_bytes(h, n);
    int rc = h->region == NULL ? open_region(h, place, err)
                               : atsi_region_resize(h->region, h->budget.slots, place, err);
    if (rc == ATSI_OK)
        rc = atsi_region_place(h->region, h->wants, n, NULL, NULL, change, err);
    for (uint32_t f = 0; f < 2 && rc == ATSI_OK; f++)
        if (h->question->slot_depth[f] > 0)
            rc = atsi_region_cut_slots(h->region, f, h->question->slot_depth[f],
                                       h->question->slot_bytes[f], err);
    return rc;
}

static int take_memory(struct atsi_hybrid *h, struct atsi_err *err)
{
    const int32_t *placed = atsi_rounds_placement(h->rounds)->device;
    struct atsi_region_change change;
    int rc = atsi_state_open(&h->state, h->s, &h->a, h->items, placed, err);
    if (rc == ATSI_OK) {
        h->version = atsi_weights_begin(h->weights);
        h->begun = true;
        rc = atsi_hybrid_fill_region(h, &change, err);
    }
    if (rc == ATSI_OK)
        atsi_source_bind(h->source, h->region);
    return rc;
}

static void close_rounds(struct atsi_hybrid *h)
{
    atsi_hybrid_close_experts(h);
    atsi_rounds_close(h->rounds);
    h->rounds = NULL;
    h->refused_seen = 0;
    atsi_question_free(h->question);
    h->question = NULL;
}

static void give_memory(struct atsi_hybrid *h)
{
    if (h->begun)
        atsi_weights_end(h->weights);
    h->begun = false;
    close_rounds(h);
    atsi_prober_close(h->prober);
    h->prober = NULL;
    atsi_region_close(h->region);
    h->region = NULL;
    atsi_state_close(&h->state);
}

/* Fewer slots and less for residents; false: there is nothing left to give up. */
static bool shrink(struct atsi_hybrid *h)
{
    if (h->budget.place == 0 && h->budget.slots == 0)
        return false;
    h->budget.place = h->budget.place / SHRINK_DEN * SHRINK_NUM;
    h->budget.slots =
        h->budget.slots / SHRINK_DEN * SHRINK_NUM / ATSI_REGION_ALIGN * ATSI_REGION_ALIGN;
    if (h->budget.place < ATSI_REGION_ALIGN)
        h->budget.place = 0;
    return true;
}

/* Others use the device too. */
static void look_again(struct atsi_hybrid *h)
{
    struct atsi_props now = {.struct_size = sizeof now};
    if (h->a.d.ops[ATSI_DEVICE_ACCEL]->props(h->a.d.be[ATSI_DEVICE_ACCEL], &now) == ATSI_OK &&
        atsi_budget_refresh(&h->budget, &h->conf, &now, &h->sizes, held(h)))
        atsi_log(h->s->rt->log, ATSI_LOG_INFO, "session",
                 "accelerator %s: less memory is free than before: %s", h->a.name, h->budget.why);
}

static int place_and_fill(struct atsi_hybrid *h, struct atsi_err *err)
{
    int rc = ATSI_ENOMEM;
    look_again(h);
    for (int try = 0; try < MAX_TRIES && rc == ATSI_ENOMEM; try++) {
        rc = ATSI_OK;
        if (try > 0) {
            atsi_accel_stop(&h->a);
            give_memory(h);
            if (!shrink(h))
                return ATSI_ENOMEM;
            rc = atsi_accel_start(&h->a, err);
        }
        if (rc == ATSI_OK)
            rc = open_rounds(h, err);
        if (rc == ATSI_OK)
            rc = take_memory(h, err);
        if (rc == ATSI_ENOMEM && try == 0 && err != NULL)
            atsi_log(h->s->rt->log, ATSI_LOG_WARN, "session",
                     "accelerator %s: %s; placing less there", h->a.name, err->msg);
    }
    return rc;
}

static void rank(uint32_t *ranked, uint32_t *n, int32_t tensor)
{
    for (uint32_t i = 0; i < *n; i++)
        if (ranked[i] == (uint32_t)tensor)
            return;
    if (tensor >= 0)
        ranked[(*n)++] = (uint32_t)tensor;
}

/* What may move, in the order it is used: of items on the host, or, before there is a placement, of
 * all.  Biases of experts move with them.  True: all of it is pinned. */
static bool pin_weights(struct atsi_hybrid *h, const int32_t *placed)
{
    struct atsi_limits limits;
    struct atsi_pin_state pins;
    uint32_t *ranked, n = 0;
    if (!h->pinned && !atsi_model_take_pins(h->s->model))
        return false;
    h->pinned = true;
    ranked = calloc(2 * (size_t)h->items->n + 1, sizeof *ranked);
    if (ranked == NULL)
        return false; /* transfers are slower, no more */
    for (uint32_t i = 0; i < h->items->n; i++) {
        const struct atsi_item_place *p = &h->items->places[i];
        if (h->items->items[i].can_promote == 0 ||
            (placed != NULL && placed[i] != ATSI_DEVICE_HOST))
            continue;
        rank(ranked, &n, p->weight);
        if (h->items->items[i].n_experts > 0)
            rank(ranked, &n, h->s->g->nodes[p->main_node]->weight[1]);
    }
    atsi_limits_read("", &limits);
    atsi_weights_pin(
        h->weights, h->a.d.ops[ATSI_DEVICE_ACCEL], h->a.d.be[ATSI_DEVICE_ACCEL], ranked, n,
        atsi_budget_pin(&h->conf, &limits, atsi_budget_memlock(), h->sizes.weights, NULL, 0));
    free(ranked);
    atsi_weights_pin_state(h->weights, &pins);
    return pins.n_pinned >= n;
}

/* The copy kernel reads pinned memory alone: it carries weights while all that may move is pinned.
 */
static void leave_copy_kernel(struct atsi_hybrid *h)
{
    atsi_log(h->s->rt->log, ATSI_LOG_WARN, "session",
             "transfer.engine = copy_kernel: not all weights that may move can be pinned; the copy "
             "engine moves them instead");
    if (h->rounds != NULL)
        atsi_exec_use_engine(atsi_rounds_exec(h->rounds));
    h->a.d.ops[ATSI_DEVICE_ACCEL]->queue_close(h->a.d.weight_queue);
    h->a.d.weight_queue = NULL;
    h->a.by_kernel = false;
}

void atsi_hybrid_pin(struct atsi_hybrid *h)
{
    bool kernel = h->a.d.weight_queue != NULL;
    const int32_t *placed =
        kernel || h->rounds == NULL ? NULL : atsi_rounds_placement(h->rounds)->device;
    if (!pin_weights(h, placed) && kernel)
        leave_copy_kernel(h);
}

static int check_items(struct atsi_hybrid *h, struct atsi_err *err)
{
    struct atsi_hybrid_ask a = atsi_hybrid_ask_of(h);
    struct atsi_plan_memory memory;
    int rc = atsi_hybrid_pin_items(&a, err);
    return rc == ATSI_OK ? atsi_budget_check(&h->budget, h->items, h->s->n_ctx, 0, &memory, err)
                         : rc;
}

/* All that is on the host, and the activations. */
static int make_all(struct atsi_hybrid *h, struct atsi_err *err)
{
    int rc = atsi_hybrid_make_budget(h, err);
    if (rc == ATSI_OK)
        rc = make_items(h, err);
    if (rc == ATSI_OK)
        rc = open_values(h, err);
    if (rc == ATSI_OK)
        rc = make_source(h, err);
    return rc == ATSI_OK ? check_items(h, err) : rc;
}

int atsi_hybrid_setup(struct atsi_hybrid *h, struct atsi_err *err)
{
    int rc = make_all(h, err);
    if (rc == ATSI_OK)
        rc = atsi_hybrid_choose_chunk(h, err);
    if (rc == 1) { /* with rounds of another size */
        atsi_hybrid_undo(h);
        rc = make_all(h, err);
    }
    if (rc == ATSI_OK && h->a.by_kernel)
        atsi_hybrid_pin(h);
    if (rc == ATSI_OK)
        rc = place_and_fill(h, err);
    if (rc == ATSI_OK && !h->a.by_kernel)
        atsi_hybrid_pin(h);
    return rc;
}

static void close_items(struct atsi_hybrid *h)
{
    atsi_source_close(h->source);
    h->source = NULL;
    h->seen = (struct atsi_source_counts){0};
    atsi_items_free(h->items);
    h->items = NULL;
    free(h->in_bytes);
    free(h->wants);
    free(h->packable);
    h->in_bytes = NULL;
    h->wants = NULL;
    h->packable = NULL;
}

void atsi_hybrid_undo(struct atsi_hybrid *h)
{
    give_memory(h);
    if (h->pinned) {
        atsi_weights_unpin(h->weights);
        atsi_model_give_pins(h->s->model);
    }
    h->pinned = false;
    close_items(h);
    atsi_values_close(&h->values);
}

/* Tiles stay as they were cut while two of them fit the slots: other tiles would have to be loaded.
 */
static void keep_tiles(struct atsi_budget *b, uint64_t tile)
{
    if (tile > 0 && tile <= b->slots / 2)
        b->tile = tile;
}

int atsi_hybrid_plan_again(struct atsi_hybrid *h, struct atsi_err *err)
{
    const struct atsi_backend_ops *ops = h->a.d.ops[ATSI_DEVICE_ACCEL];
    uint64_t tile = h->budget.tile;
    int rc = ops->props(h->a.d.be[ATSI_DEVICE_ACCEL], &h->a.props);
    if (rc != ATSI_OK)
        return atsi_fail(err, rc, "it does not say how much memory it has");
    if (h->a.props.mem_total_bytes != 0) /* else it does not know */
        h->a.props.mem_free_bytes += held(h);
    close_rounds(h);
    close_items(h);
    rc = atsi_hybrid_make_budget(h, err);
    if (rc == ATSI_OK) {
        keep_tiles(&h->budget, tile);
        atsi_values_most_rows(&h->values);
        rc = make_items(h, err);
    }
    if (rc == ATSI_OK)
        rc = make_source(h, err);
    if (rc == ATSI_OK)
        rc = check_items(h, err);
    if (rc == ATSI_OK && h->a.by_kernel)
        atsi_hybrid_pin(h);
    return rc == ATSI_OK ? open_rounds(h, err) : rc;
}
