/* SPDX-License-Identifier: Apache-2.0
 *
 * Random sequences of operations over one small arena, so that buffers are reused, overlap in part
 * and feed each other in every way: a split of several workers must leave what the operations leave
 * when they run one after the other on one worker.
 *
 * The workers take turns: one runs up to its next barrier while all others stand still, in an order
 * drawn anew for each region.  A missing barrier therefore fails every time, not once in a while,
 * and scratch comes full of NaN, so that nothing may be expected there.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>
#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#include "backend_fixture.h"

/* ---------------------------------------------------------------- workers that take turns */
#define MAX_WORKERS 4u

struct turns {
    pthread_mutex_t lock;
    pthread_cond_t moved;
    uint32_t n, order[MAX_WORKERS], at; /* order[at] may run */
    bool done[MAX_WORKERS];
    void (*fn)(void *arg, struct atsi_worker *w);
    void *arg;
};

struct turn_worker {
    struct atsi_worker w; /* first: the barrier gets this */
    struct turns *turns;
};

static uint64_t random_state;

static uint32_t below(uint32_t n)
{
    random_state = random_state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return (uint32_t)((random_state >> 33) % n);
}

/* The lock is held. */
static void pass_on(struct turns *t)
{
    for (uint32_t i = 0; i < t->n; i++) {
        t->at = (t->at + 1) % t->n;
        if (!t->done[t->order[t->at]])
            break;
    }
    (void)pthread_cond_broadcast(&t->moved);
}

static void wait_for_turn(struct turns *t, uint32_t tid)
{
    while (t->order[t->at] != tid)
        (void)pthread_cond_wait(&t->moved, &t->lock);
}

static void turn_barrier(struct atsi_worker *w)
{
    struct turns *t = ((struct turn_worker *)w)->turns;
    (void)pthread_mutex_lock(&t->lock);
    pass_on(t);
    wait_for_turn(t, w->tid);
    (void)pthread_mutex_unlock(&t->lock);
}

static void *turn_main(void *arg)
{
    struct turn_worker *me = arg;
    struct turns *t = me->turns;
    (void)pthread_mutex_lock(&t->lock);
    wait_for_turn(t, me->w.tid);
    (void)pthread_mutex_unlock(&t->lock);
    t->fn(t->arg, &me->w);
    (void)pthread_mutex_lock(&t->lock);
    t->done[me->w.tid] = true;
    pass_on(t);
    (void)pthread_mutex_unlock(&t->lock);
    return NULL;
}

static uint32_t n_workers;

static uint32_t turn_threads(void *ctx)
{
    (void)ctx;
    return n_workers;
}

static int turn_region(void *ctx, void (*fn)(void *arg, struct atsi_worker *w), void *arg,
                       size_t scratch_bytes)
{
    struct turns t = {.n = n_workers, .fn = fn, .arg = arg};
    struct turn_worker worker[MAX_WORKERS];
    pthread_t thread[MAX_WORKERS];
    size_t bytes = (scratch_bytes + 64) / 64 * 64;
    (void)ctx;
    assert_int_equal(pthread_mutex_init(&t.lock, NULL), 0);
    assert_int_equal(pthread_cond_init(&t.moved, NULL), 0);
    for (uint32_t i = 0; i < t.n; i++) {
        uint32_t j = below(i + 1);
        t.order[i] = t.order[j];
        t.order[j] = i;
    }
    for (uint32_t i = 0; i < t.n; i++) {
        void *scratch = aligned_alloc(64, bytes);
        assert_non_null(scratch);
        memset(scratch, 0xff, bytes);
        worker[i] =
            (struct turn_worker){{sizeof(struct atsi_worker), i, t.n, scratch, turn_barrier}, &t};
    }
    for (uint32_t i = 0; i < t.n; i++)
        assert_int_equal(pthread_create(&thread[i], NULL, turn_main, &worker[i]), 0);
    for (uint32_t i = 0; i < t.n; i++) {
        assert_int_equal(pthread_join(thread[i], NULL), 0);
        free(worker[i].w.scratch);
    }
    (void)pthread_cond_destroy(&t.moved);
    (void)pthread_mutex_destroy(&t.lock);
    return ATSI_OK;
}

static void kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    (void)host;
    cpu_ref_kernels(out);
}

/* ---------------------------------------------------------------- the world the ops change */
enum { MAX_T = 4, N_EXPERT = 4, K_USED = 2, CELLS = 12, HEADS = 4, KV_HEADS = 2, DIM = 32 };
enum { ARENA = 10240, N_IDS = 3, VOCAB = 7, CACHE = KV_HEADS * CELLS * DIM, N_ROT = 32 };
enum { N_CACHES = 3, WINDOW = CELLS - MAX_T + 1, POSITIONS = 40 };
enum { CHANNELS = 64, TAPS = 4, KEY_HEADS = 2, VALUE_HEADS = 4, DK = 8, DV = 8 };

/* Rows of different widths lie anywhere in `arena`, at multiples of 64 bytes. */
static _Alignas(64) struct world {
    float arena[ARENA];
    float cache[N_CACHES][2][CACHE]; /* [which][keys, values]; large enough for f32 */
    float kept[2][CHANNELS + DK * DV * VALUE_HEADS]; /* states of both kinds overlap in part */
    int32_t ids[N_IDS][MAX_T * K_USED];
} world, initial, expected;

static int32_t positions[POSITIONS], tokens[MAX_T] = {3, 0, 6, 3};

static struct atsi_kv caches[N_CACHES];
static struct atsi_tensor conv_state[2], delta_state[2];

static struct {
    struct atsi_tensor plain[6], experts[3], norm, freq, embed, bias;
    struct atsi_tensor conv, rates, sinks;
} weights;

static struct atsi_tensor kept(uint64_t ne0, uint64_t ne1, uint64_t ne2, void *data)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = ATSI_TYPE_F32,
                                .n_dims = 3,
                                .ne = {ne0, ne1, ne2, 1},
                                .row_bytes = ne0 * 4,
                                .data = data,
                                .name = "kept"};
}

static void kept_open(void)
{
    static const uint32_t types[N_CACHES] = {ATSI_TYPE_F16, ATSI_TYPE_F32, ATSI_TYPE_Q8_0};
    for (int i = 0; i < N_CACHES; i++)
        caches[i] = (struct atsi_kv){
            sizeof caches[i],  types[i],         types[i], KV_HEADS, DIM, DIM, CELLS,
            world.cache[i][0], world.cache[i][1]};
    for (int i = 0; i < 2; i++) {
        conv_state[i] = kept(CHANNELS, TAPS - 1, 1, world.kept[i]);
        delta_state[i] = kept(DV, DK, VALUE_HEADS, world.kept[i] + CHANNELS);
    }
}

static void weights_open(void)
{
    tensor_seed(11);
    weights.plain[0] = tensor_new(ATSI_TYPE_Q8_0, 256, 64, 1);
    weights.plain[1] = tensor_new(ATSI_TYPE_Q4_K, 256, 256, 1);
    weights.plain[2] = tensor_new(ATSI_TYPE_F16, 64, 256, 1);
    weights.plain[3] = tensor_new(ATSI_TYPE_MXFP4, 256, 512, 1);
    weights.plain[4] = tensor_new(ATSI_TYPE_Q6_K, 512, 256, 1);
    weights.plain[5] = tensor_new(ATSI_TYPE_Q5_1, 64, 112, 1);
    weights.experts[0] = tensor_new(ATSI_TYPE_Q4_0, 64, 64, N_EXPERT);
    weights.experts[1] = tensor_new(ATSI_TYPE_Q4_K, 256, 48, N_EXPERT);
    weights.experts[2] = tensor_new(ATSI_TYPE_BF16, 64, 32, N_EXPERT);
    weights.norm = tensor_new(ATSI_TYPE_F32, 64, 1, 1);
    weights.freq = tensor_new(ATSI_TYPE_F32, N_ROT / 2, 1, 1);
    weights.embed = tensor_new(ATSI_TYPE_Q8_0, 256, VOCAB, 1);
    weights.bias = tensor_new(ATSI_TYPE_F32, 256, 1, 1);
    weights.conv = tensor_new(ATSI_TYPE_F32, TAPS, CHANNELS, 1);
    weights.rates = tensor_new(ATSI_TYPE_F32, VALUE_HEADS, 1, 1);
    weights.sinks = tensor_new(ATSI_TYPE_F32, HEADS, 1, 1);
    for (int i = 0; i < VALUE_HEADS; i++)
        floats(&weights.rates)[i] = -1.0F - (float)i;
    for (int i = 0; i < POSITIONS; i++)
        positions[i] = i;
    kept_open();
}

static void weights_close(void)
{
    for (int i = 0; i < 6; i++)
        tensor_free(&weights.plain[i]);
    for (int i = 0; i < 3; i++)
        tensor_free(&weights.experts[i]);
    tensor_free(&weights.norm);
    tensor_free(&weights.freq);
    tensor_free(&weights.embed);
    tensor_free(&weights.bias);
    tensor_free(&weights.conv);
    tensor_free(&weights.rates);
    tensor_free(&weights.sinks);
}

static void world_start(void)
{
    memset(&initial, 0, sizeof initial);
    for (int i = 0; i < ARENA; i++)
        initial.arena[i] = (float)below(2001) / 1000.0F - 1.0F;
    for (int i = 0; i < N_IDS; i++)
        for (int j = 0; j < MAX_T * K_USED; j++)
            initial.ids[i][j] = (int32_t)below(N_EXPERT);
}

/* ---------------------------------------------------------------- drawing operations */
#define N_OPS 18u

struct sequence {
    struct atsi_op op[N_OPS];
    struct atsi_tensor t[N_OPS][6];
    const struct atsi_op *list[N_OPS];
    uint32_t n_t[N_OPS];
    const struct atsi_tensor *last_x; /* of a product: the next one often shares its rounding */
};

static struct atsi_tensor *view(struct sequence *s, uint32_t i, uint32_t type, uint32_t width,
                                void *data)
{
    struct atsi_tensor *t = &s->t[i][s->n_t[i]++];
    *t = (struct atsi_tensor){.struct_size = sizeof *t,
                              .type = type,
                              .n_dims = 2,
                              .ne = {width, s->op[i].n_rows, 1, 1},
                              .row_bytes = (uint64_t)width * 4,
                              .data = data,
                              .name = "view"};
    return t;
}

static uintptr_t end_of(const struct atsi_tensor *t)
{
    return (uintptr_t)t->data + t->row_bytes * t->ne[1];
}

static bool overlap(const struct atsi_tensor *a, const struct atsi_tensor *b)
{
    return (uintptr_t)a->data < end_of(b) && (uintptr_t)b->data < end_of(a);
}

static struct atsi_tensor *source(struct sequence *s, uint32_t i, uint32_t width)
{
    uint32_t places = (ARENA - width * s->op[i].n_rows) / 16;
    return view(s, i, ATSI_TYPE_F32, width, world.arena + (size_t)16 * below(places + 1));
}

/* Where it touches none of the op's other views. */
static struct atsi_tensor *result(struct sequence *s, uint32_t i, uint32_t width)
{
    for (;;) {
        struct atsi_tensor *t = source(s, i, width);
        bool free_place = true;
        for (uint32_t j = 0; j + 1 < s->n_t[i]; j++)
            free_place = free_place && !overlap(t, &s->t[i][j]);
        if (free_place)
            return t;
        s->n_t[i]--;
    }
}

/* Half of the products read what the product before read, in rows of their own length: they may
 * share its rounding, but a single row is rounded elsewhere than several. */
static void share_source(struct sequence *s, uint32_t i, struct atsi_tensor *x)
{
    const struct atsi_tensor *last = s->last_x;
    uint64_t n = last != NULL ? last->ne[0] * last->ne[1] : 0;
    if (n > 0 && n % x->ne[0] == 0 && n / x->ne[0] <= MAX_T && below(2) == 0) {
        x->data = last->data;
        x->ne[1] = s->op[i].n_rows = (uint32_t)(n / x->ne[0]);
    }
    s->last_x = x;
}

static void draw_product(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    const struct atsi_tensor *w = &weights.plain[below(6)];
    struct atsi_tensor *x = source(s, i, (uint32_t)w->ne[0]);
    share_source(s, i, x);
    op->weight[0] = w;
    op->weight[1] = w->ne[1] == 256 && below(2) == 0 ? &weights.bias : NULL;
    op->flags = below(6) == 0 ? ATSI_OP_EXACT : 0;
    op->src[0] = x;
    op->dst[0] = result(s, i, (uint32_t)w->ne[1]);
}

static void draw_experts(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    const struct atsi_tensor *w = &weights.experts[below(3)];
    struct atsi_tensor *x = source(s, i, (uint32_t)w->ne[0] * (below(2) == 0 ? K_USED : 1));
    share_source(s, i, x);
    op->weight[0] = w;
    op->flags = below(6) == 0 ? ATSI_OP_EXACT : 0;
    op->p.moe.n_used = K_USED;
    op->src[0] = x;
    op->src[1] = view(s, i, ATSI_TYPE_I32, K_USED, world.ids[below(N_IDS)]);
    op->dst[0] = result(s, i, (uint32_t)w->ne[1] * K_USED);
}

static void draw_attn(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    bool window = below(2) == 0; /* beyond the ring's end, where all that is seen has a cell */
    uint32_t first = below((window ? POSITIONS : CELLS) - op->n_rows + 1);
    op->kv = &caches[below(N_CACHES)];
    op->p.attn.window = window ? 1 + below(WINDOW) : 0;
    op->weight[0] = below(2) == 0 ? &weights.sinks : NULL;
    op->p.attn.n_head = HEADS;
    op->p.attn.n_head_kv = KV_HEADS;
    op->p.attn.head_dim_k = op->p.attn.head_dim_v = DIM;
    op->p.attn.n_kv = first + op->n_rows;
    op->p.attn.scale = 0.17F;
    op->src[0] = source(s, i, HEADS * DIM);
    op->src[1] = source(s, i, KV_HEADS * DIM);
    op->src[2] = source(s, i, KV_HEADS * DIM);
    op->src[3] = view(s, i, ATSI_TYPE_I32, 1, positions + first);
    op->dst[0] = result(s, i, HEADS * DIM);
}

static void draw_rope(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    op->p.rope.n_head = HEADS;
    op->p.rope.head_dim = 64;
    op->p.rope.n_rot = N_ROT;
    op->p.rope.mode = below(2);
    op->src[1] = source(s, i, N_ROT);
    op->dst[0] = result(s, i, HEADS * 64);
    op->src[0] = op->dst[0]; /* in place, or not */
    if (below(2) == 0)
        op->dst[0] = result(s, i, HEADS * 64);
}

static void draw_pair(struct sequence *s, uint32_t i)
{
    static const uint32_t widths[] = {64, 256, 512};
    struct atsi_op *op = &s->op[i];
    uint32_t width = widths[below(3)];
    op->src[1] = source(s, i, width);
    op->dst[0] = result(s, i, width);
    op->src[0] = op->dst[0]; /* in place, or not */
    if (below(2) == 0)
        op->dst[0] = result(s, i, width);
    if (op->kind == ATSI_OP_SWIGLU && below(2) == 0) { /* both halves in one source */
        s->n_t[i] = 0;
        op->src[0] = source(s, i, 2 * width);
        op->src[1] = NULL;
        op->p.glu.n_group = 1 + below(2);
        op->dst[0] = result(s, i, width);
    }
}

/* Gates per element, or one per run; pieces in another order. */
static void draw_gate(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    if (op->kind == ATSI_OP_GATE) {
        op->p.gate.run = 64;
        op->p.gate.scalar = below(2);
        op->p.gate.stride = op->p.gate.scalar != 0 ? 1 : 64;
        op->src[0] = source(s, i, 256);
        op->src[1] = source(s, i, 256);
        op->dst[0] = result(s, i, 256);
    } else {
        op->p.regroup.n_group = 4;
        op->p.regroup.stride = 64;
        op->p.regroup.n_seg = 2;
        op->p.regroup.offset[0] = 32;
        op->p.regroup.len[0] = 32;
        op->p.regroup.len[1] = 16;
        op->src[0] = source(s, i, 256);
        op->dst[0] = result(s, i, 192);
    }
}

static void draw_recurrent(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    if (op->kind == ATSI_OP_CONV) {
        op->src[0] = source(s, i, CHANNELS);
        op->weight[0] = &weights.conv;
        op->state = &conv_state[below(2)];
        op->dst[0] = result(s, i, CHANNELS);
        return;
    }
    op->p.delta.n_head_k = KEY_HEADS;
    op->p.delta.n_head_v = op->p.delta.run = VALUE_HEADS;
    op->p.delta.dim_k = DK;
    op->p.delta.dim_v = DV;
    op->p.delta.tiled = below(2);
    op->p.delta.eps = 1e-6F;
    op->src[0] = source(s, i, 2 * KEY_HEADS * DK + VALUE_HEADS * DV);
    op->src[1] = source(s, i, VALUE_HEADS);
    op->src[2] = source(s, i, VALUE_HEADS);
    op->weight[0] = op->weight[1] = &weights.rates;
    op->state = &delta_state[below(2)];
    op->dst[0] = result(s, i, VALUE_HEADS * DV);
}

static void draw_routing(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    op->p.moe.n_used = K_USED;
    if (op->kind == ATSI_OP_TOPK) {
        op->src[0] = source(s, i, N_EXPERT);
        op->dst[0] = view(s, i, ATSI_TYPE_I32, K_USED, world.ids[below(N_IDS)]);
        op->dst[1] = result(s, i, K_USED);
    } else {
        op->src[0] = source(s, i, 64 * K_USED);
        op->src[1] = source(s, i, K_USED);
        op->dst[0] = result(s, i, 64);
    }
}

static void draw_simple(struct sequence *s, uint32_t i)
{
    struct atsi_op *op = &s->op[i];
    if (op->kind == ATSI_OP_EMBED) {
        op->src[0] = view(s, i, ATSI_TYPE_I32, 1, tokens);
        op->weight[0] = &weights.embed;
        op->dst[0] = result(s, i, 256);
    } else if (op->kind == ATSI_OP_ROPE_TABLE) {
        op->src[0] = view(s, i, ATSI_TYPE_I32, 1, positions + below(CELLS - MAX_T + 1));
        op->weight[0] = &weights.freq;
        op->p.rope.magnitude = 1;
        op->dst[0] = result(s, i, N_ROT);
    } else { /* RMS_NORM of whole rows or of parts, of which every other one may be left out */
        uint32_t width = below(2) == 0 ? 64 : 256;
        op->p.norm.stride = below(2) == 0 ? 128 : 0;
        op->src[0] = source(s, i, op->p.norm.stride != 0 ? 2 * width : width);
        op->weight[0] = &weights.norm;
        op->p.norm.eps = 1e-5F;
        op->dst[0] = result(s, i, width);
    }
}

static void draw_op(struct sequence *s, uint32_t i)
{
    switch (s->op[i].kind) {
    case ATSI_OP_MATMUL:
        draw_product(s, i);
        break;
    case ATSI_OP_MATMUL_ID:
        draw_experts(s, i);
        break;
    case ATSI_OP_ATTN:
        draw_attn(s, i);
        break;
    case ATSI_OP_ROPE:
        draw_rope(s, i);
        break;
    case ATSI_OP_SWIGLU:
    case ATSI_OP_ADD:
        draw_pair(s, i);
        break;
    case ATSI_OP_TOPK:
    case ATSI_OP_MOE_SUM:
        draw_routing(s, i);
        break;
    case ATSI_OP_GATE:
    case ATSI_OP_REGROUP:
        draw_gate(s, i);
        break;
    case ATSI_OP_CONV:
    case ATSI_OP_DELTA_NET:
        draw_recurrent(s, i);
        break;
    default:
        draw_simple(s, i);
        break;
    }
}

static void draw_sequence(struct sequence *s)
{
    static const uint32_t kinds[] = {
        ATSI_OP_EMBED,      ATSI_OP_RMS_NORM,  ATSI_OP_RMS_NORM,  ATSI_OP_MATMUL,
        ATSI_OP_MATMUL,     ATSI_OP_MATMUL,    ATSI_OP_MATMUL,    ATSI_OP_MATMUL,
        ATSI_OP_ROPE_TABLE, ATSI_OP_ROPE,      ATSI_OP_ATTN,      ATSI_OP_ATTN,
        ATSI_OP_SWIGLU,     ATSI_OP_SWIGLU,    ATSI_OP_ADD,       ATSI_OP_TOPK,
        ATSI_OP_MATMUL_ID,  ATSI_OP_MATMUL_ID, ATSI_OP_MATMUL_ID, ATSI_OP_MOE_SUM,
        ATSI_OP_GATE,       ATSI_OP_REGROUP,   ATSI_OP_CONV,      ATSI_OP_CONV,
        ATSI_OP_DELTA_NET,  ATSI_OP_DELTA_NET};
    uint32_t rows = 1 + below(MAX_T);
    memset(s, 0, sizeof *s);
    for (uint32_t i = 0; i < N_OPS; i++) {
        s->op[i] = (struct atsi_op){.struct_size = sizeof s->op[i],
                                    .kind = kinds[below(sizeof kinds / sizeof kinds[0])],
                                    .n_rows = below(3) == 0 ? 1 + below(MAX_T) : rows};
        s->list[i] = &s->op[i];
        draw_op(s, i);
    }
}

/* ---------------------------------------------------------------- comparing */
struct device {
    struct atsi_host host;
    struct atsi_backend *be;
    struct atsi_queue *queue;
};

static void device_open(struct device *d)
{
    static const struct cpu_plugin_desc desc = {"turns", 0, kernels};
    struct atsi_err err = ATSI_ERR_INIT;
    *d = (struct device){
        .host = {.struct_size = sizeof d->host, .region = turn_region, .n_threads = turn_threads}};
    cpu_backend_describe(&desc);
    assert_int_equal(cpu_backend_ops.open(&d->host, 0, &d->be, &err), ATSI_OK);
    assert_int_equal(cpu_backend_ops.queue_open(d->be, &d->queue, &err), ATSI_OK);
}

static void device_close(struct device *d)
{
    cpu_backend_ops.queue_close(d->queue);
    cpu_backend_ops.close(d->be);
}

static void run_ops(struct device *d, const struct atsi_op *const *ops, uint32_t n)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_split split = {.struct_size = sizeof split, .n_ops = n, .ops = ops};
    if (cpu_backend_ops.run(d->queue, &split, &err) != ATSI_OK)
        fail_msg("%s", err.msg);
}

/* Every beginning of the sequence, with the same turns: the first that differs ends with the guilty
 * operation. */
static void compare(struct device *d, const struct sequence *s, uint64_t seed)
{
    uint32_t many = 2 + below(MAX_WORKERS - 1);
    uint64_t turns = random_state;
    const unsigned char *got = (const unsigned char *)&world;
    const unsigned char *want = (const unsigned char *)&expected; /* bits, NaN included */
    for (uint32_t n = 1; n <= N_OPS; n++) {
        n_workers = 1;
        memcpy(&world, &initial, sizeof world);
        for (uint32_t i = 0; i < n; i++)
            run_ops(d, &s->list[i], 1);
        memcpy(&expected, &world, sizeof world);
        n_workers = many;
        random_state = turns;
        memcpy(&world, &initial, sizeof world);
        run_ops(d, s->list, n);
        if (memcmp(got, want, sizeof world) != 0)
            fail_msg("seed %llu, %u workers: operation %u (kind %u, %u rows) of a split differs "
                     "from the operations one by one",
                     (unsigned long long)seed, n_workers, n - 1, s->op[n - 1].kind,
                     s->op[n - 1].n_rows);
    }
}

static void splits_equal_their_operations_one_by_one(void **state)
{
    static struct sequence s;
    struct device d;
    uint64_t n_finite = 0, n_values = 0;
    (void)state;
    weights_open();
    device_open(&d);
    for (uint64_t seed = 1; seed <= 120; seed++) {
        random_state = seed * UINT64_C(0x9e3779b97f4a7c15);
        world_start();
        draw_sequence(&s);
        compare(&d, &s, seed);
        for (int i = 0; i < ARENA; i++, n_values++)
            n_finite += world.arena[i] - world.arena[i] == 0 && world.arena[i] != 0 ? 1 : 0;
    }
    assert_true(n_finite > n_values / 10 * 9); /* else the comparison would say little */
    device_close(&d);
    weights_close();
}

/* Caches and states are no results of the op, yet the next one rewrites what it still reads. */
static void operations_that_share_what_they_keep(void **state)
{
    static struct sequence s;
    struct device d;
    (void)state;
    weights_open();
    device_open(&d);
    random_state = 5;
    for (uint64_t i = 0; i < 30; i++) {
        world_start();
        memset(&s, 0, sizeof s);
        for (uint32_t j = 0; j < N_OPS; j++) {
            bool conv = below(2) == 0;
            s.op[j] = (struct atsi_op){
                .struct_size = sizeof s.op[j],
                .kind = i % 2 == 0 ? ATSI_OP_ATTN : (conv ? ATSI_OP_CONV : ATSI_OP_DELTA_NET),
                .n_rows = MAX_T};
            s.list[j] = &s.op[j];
            draw_op(&s, j);
            if (i % 2 == 0)
                s.op[j].kv = &caches[i / 2 % N_CACHES];
            else
                s.op[j].state = conv ? &conv_state[0] : &delta_state[0];
        }
        compare(&d, &s, i);
    }
    device_close(&d);
    weights_close();
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(splits_equal_their_operations_one_by_one),
        cmocka_unit_test(operations_that_share_what_they_keep),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
