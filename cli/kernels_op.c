/* SPDX-License-Identifier: Apache-2.0
 * Driving a backend by hand: a queue, buffers of random numbers, one product. */
#include "cli/kernels_op.h"

#include "panel/pack.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

int kernels_open(const struct atsi_runtime *rt, const char *name, struct kernels_backend *out,
                 struct atsi_err *err)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    struct atsi_props props = {.struct_size = sizeof props};
    int rc;
    memset(out, 0, sizeof *out);
    out->name = name;
    out->ops = atsi_runtime_component(rt, ATSI_KIND_BACKEND, name);
    if (out->ops == NULL)
        return atsi_fail(err, ATSI_ECONF, "no backend %s here; `atsinfer plugins` lists them",
                         name);
    rc = out->ops->open(host, 0, &out->be, err);
    if (rc == ATSI_OK)
        rc = out->ops->props(out->be, &props);
    if (rc == ATSI_OK)
        rc = out->ops->queue_open(out->be, &out->queue, err);
    if (rc == ATSI_OK && props.device_kind == ATSI_DEVICE_GPU)
        rc = kernels_link_open(rt, out, err);
    if (rc != ATSI_OK) {
        kernels_close(out);
        return rc;
    }
    memcpy(out->detail, props.detail, sizeof out->detail);
    out->device_kind = props.device_kind;
    return ATSI_OK;
}

void kernels_close(struct kernels_backend *b)
{
    if (b->ops == NULL)
        return;
    b->ops->queue_close(b->queue);
    kernels_link_close(b);
    b->ops->close(b->be);
    memset(b, 0, sizeof *b);
}

static uint64_t next_random(uint64_t *state)
{
    *state = *state * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
    return *state >> 16;
}

/* f16 numbers of order 2^-6: sign and low mantissa bits are random. */
static uint16_t small_f16(uint64_t *state)
{
    return (uint16_t)(0x2400u | (next_random(state) & 0x03ffu));
}

/* Where the f16 scales of a block lie; everything else may hold any bits. */
static void set_scales(uint32_t type, unsigned char *block, uint64_t *state)
{
    static const struct {
        uint32_t type, at[2], n;
    } scales[] = {
        {ATSI_TYPE_Q4_0, {0}, 1},    {ATSI_TYPE_Q4_1, {0, 2}, 2}, {ATSI_TYPE_Q5_0, {0}, 1},
        {ATSI_TYPE_Q5_1, {0, 2}, 2}, {ATSI_TYPE_Q8_0, {0}, 1},    {ATSI_TYPE_Q2_K, {80, 82}, 2},
        {ATSI_TYPE_Q3_K, {108}, 1},  {ATSI_TYPE_Q4_K, {0, 2}, 2}, {ATSI_TYPE_Q5_K, {0, 2}, 2},
        {ATSI_TYPE_Q6_K, {208}, 1},  {ATSI_TYPE_IQ4_NL, {0}, 1},  {ATSI_TYPE_IQ4_XS, {0}, 1},
    };
    for (size_t i = 0; i < sizeof scales / sizeof scales[0]; i++)
        for (uint32_t n = 0; scales[i].type == type && n < scales[i].n; n++) {
            uint16_t d = small_f16(state);
            memcpy(block + scales[i].at[n], &d, sizeof d);
        }
    if (type == ATSI_TYPE_MXFP4)
        block[0] = (unsigned char)(118 + next_random(state) % 8);
}

static void fill_floats(uint32_t type, unsigned char *data, size_t n, uint64_t *state)
{
    for (size_t i = 0; i < n; i++) {
        float x = (float)(int64_t)(next_random(state) % 2001) / 1000.0F - 1.0F;
        uint32_t bits;
        uint16_t half;
        memcpy(&bits, &x, sizeof bits);
        half = type == ATSI_TYPE_F16 ? atsi_f32_to_f16(x) : (uint16_t)(bits >> 16);
        if (type == ATSI_TYPE_F32)
            memcpy(data + i * 4, &x, 4);
        else
            memcpy(data + i * 2, &half, 2);
    }
}

void kernels_fill(uint32_t type, void *data, size_t n, uint64_t *random)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    unsigned char *bytes = data;
    size_t n_bytes = n / ti->block_elems * ti->block_bytes;
    if (ti->block_elems == 1) {
        fill_floats(type, bytes, n, random);
        return;
    }
    for (size_t i = 0; i < n_bytes; i += 8) {
        uint64_t r = next_random(random) ^ (next_random(random) << 32);
        memcpy(bytes + i, &r, n_bytes - i < 8 ? n_bytes - i : 8);
    }
    for (size_t i = 0; i < n_bytes; i += ti->block_bytes)
        set_scales(type, bytes + i, random);
}

static size_t weight_bytes(const struct kernels_product *p)
{
    return (size_t)atsi_row_bytes(p->type, p->k) * p->n_out;
}

int kernels_product_open(struct kernels_product *p, uint32_t type, uint32_t k, uint32_t n_out,
                         uint32_t rows, uint32_t n_copies, uint64_t seed)
{
    uint64_t state = seed;
    size_t bytes;
    *p = (struct kernels_product){
        .type = type, .k = k, .n_out = n_out, .rows = rows, .n_copies = n_copies};
    bytes = weight_bytes(p) * n_copies;
    p->weights = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    p->x = aligned_alloc(64, ((size_t)rows * k * sizeof(float) + 127) / 64 * 64);
    p->y = aligned_alloc(64, ((size_t)rows * n_out * sizeof(float) + 127) / 64 * 64);
    if (p->weights == MAP_FAILED)
        p->weights = NULL;
    if (p->weights == NULL || p->x == NULL || p->y == NULL) {
        kernels_product_close(p);
        return ATSI_ENOMEM;
    }
    (void)madvise(p->weights, bytes, MADV_HUGEPAGE); /* a hint */
    kernels_fill(type, p->weights, (size_t)k * n_out * n_copies, &state);
    fill_floats(ATSI_TYPE_F32, (unsigned char *)p->x, (size_t)rows * k, &state);
    return ATSI_OK;
}

static void leave_device(struct kernels_product *p)
{
    if (p->at != NULL)
        p->at->ops->buf_free(p->at->be, p->buf);
    p->at = NULL;
    p->buf = NULL;
}

void kernels_product_close(struct kernels_product *p)
{
    leave_device(p);
    if (p->weights != NULL)
        (void)munmap(p->weights, weight_bytes(p) * p->n_copies);
    free(p->x);
    free(p->y);
    memset(p, 0, sizeof *p);
}

struct product_op {
    struct atsi_tensor w, x, y;
    struct atsi_op op;
};

static struct atsi_tensor matrix(uint32_t type, uint32_t width, uint32_t rows, void *data)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = type,
                                .n_dims = 2,
                                .ne = {width, rows, 1, 1},
                                .row_bytes = atsi_row_bytes(type, width),
                                .data = data,
                                .name = "kernels"};
}

/* Where the parts of a product lie behind the start of a device's buffer. */
static size_t x_at(const struct kernels_product *p)
{
    return (weight_bytes(p) * p->n_copies + 255) / 256 * 256;
}

static size_t y_at(const struct kernels_product *p)
{
    return x_at(p) + ((size_t)p->rows * p->k * sizeof(float) + 255) / 256 * 256;
}

static void build_op(const struct kernels_product *p, uint32_t copy, struct product_op *o)
{
    unsigned char *there = p->buf != NULL ? p->at->ops->buf_ptr(p->buf) : NULL;
    unsigned char *weights = there != NULL ? there : p->weights;
    void *x = there != NULL ? (void *)(there + x_at(p)) : p->x;
    void *y = there != NULL ? (void *)(there + y_at(p)) : p->y;
    *o = (struct product_op){.w = matrix(p->type, p->k, p->n_out, weights + weight_bytes(p) * copy),
                             .x = matrix(ATSI_TYPE_F32, p->k, p->rows, x),
                             .y = matrix(ATSI_TYPE_F32, p->n_out, p->rows, y)};
    o->op = (struct atsi_op){.struct_size = sizeof o->op,
                             .kind = ATSI_OP_MATMUL,
                             .n_rows = p->rows,
                             .src = {&o->x},
                             .weight = {&o->w},
                             .dst = {&o->y}};
    if (p->panels)
        o->w.layout = ATSI_LAYOUT_PANELS;
}

int kernels_product_supported(const struct kernels_backend *b, const struct kernels_product *p)
{
    struct product_op o;
    build_op(p, 0, &o);
    return b->ops->supports(b->be, &o.op);
}

/* Puts weights and activations into the device's memory, where they stay. */
static int enter_device(struct kernels_backend *b, struct kernels_product *p, struct atsi_err *err)
{
    unsigned char *there;
    int rc;
    if (b->link == NULL || p->at == b)
        return ATSI_OK;
    leave_device(p);
    rc = b->ops->buf_alloc(b->be, ATSI_MEM_DEVICE,
                           y_at(p) + (size_t)p->rows * p->n_out * sizeof(float), &p->buf, err);
    if (rc != ATSI_OK)
        return rc;
    p->at = b;
    there = b->ops->buf_ptr(p->buf);
    rc = kernels_copy(b, there, p->weights, weight_bytes(p) * p->n_copies, err);
    if (rc == ATSI_OK)
        rc = kernels_copy(b, there + x_at(p), p->x, (size_t)p->rows * p->k * sizeof(float), err);
    return rc;
}

int kernels_product_run(struct kernels_backend *b, struct kernels_product *p, struct atsi_err *err)
{
    struct product_op o;
    const struct atsi_op *ops[] = {&o.op};
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = 1, .ops = ops, .signal = b->done};
    int rc = enter_device(b, p, err);
    if (rc != ATSI_OK)
        return rc;
    build_op(p, p->next, &o);
    p->next = (p->next + 1) % p->n_copies;
    return b->ops->run(b->queue, &split, err);
}

int kernels_product_run_all(struct kernels_backend *b, struct kernels_product *p,
                            struct atsi_err *err)
{
    struct product_op *o = calloc(p->n_copies, sizeof *o);
    const struct atsi_op **ops = calloc(p->n_copies, sizeof(void *));
    struct atsi_split split = {
        .struct_size = sizeof split, .n_ops = p->n_copies, .ops = ops, .signal = b->done};
    int rc = ATSI_ENOMEM;
    if (o == NULL || ops == NULL) {
        (void)atsi_fail(err, rc, "out of memory");
        goto done;
    }
    rc = enter_device(b, p, err);
    if (rc != ATSI_OK)
        goto done;
    for (uint32_t i = 0; i < p->n_copies; i++) {
        build_op(p, i, &o[i]);
        ops[i] = &o[i].op;
    }
    rc = b->ops->run(b->queue, &split, err);
done:
    free(ops);
    free(o);
    return rc;
}

int kernels_product_pack(struct kernels_product *p)
{
    const struct atsi_panel_matrix m = {p->type, p->k, p->n_out, p->n_copies};
    size_t bytes = weight_bytes(p) * p->n_copies;
    void *panels = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (panels == MAP_FAILED)
        return ATSI_ENOMEM;
    atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 0, p->weights, panels);
    (void)munmap(p->weights, bytes);
    p->weights = panels;
    p->panels = true;
    return ATSI_OK;
}

static int compare_u64(const void *a, const void *b)
{
    uint64_t x, y;
    memcpy(&x, a, sizeof x);
    memcpy(&y, b, sizeof y);
    return x < y ? -1 : x > y;
}

int kernels_product_time(const struct atsi_runtime *rt, struct kernels_backend *b,
                         struct kernels_product *p, uint32_t per_sample, uint64_t limit_ns,
                         struct kernels_times *out, struct atsi_err *err)
{
    const struct atsi_host *host = atsi_runtime_host(rt);
    uint64_t t[KERNELS_SAMPLES] = {0}, begin = host->now_ns(host->ctx), median;
    uint32_t n = 0;
    memset(out, 0, sizeof *out);
    for (int s = -1; s < KERNELS_SAMPLES; s++) { /* the first one warms up */
        uint64_t start = host->now_ns(host->ctx);
        if (n > 0 && start - begin > limit_ns)
            break;
        for (uint32_t i = 0; i < per_sample; i++) {
            int rc = kernels_product_run(b, p, err);
            if (rc == ATSI_OK && i + 1 == per_sample)
                rc = kernels_wait(b, err);
            if (rc != ATSI_OK)
                return rc;
        }
        if (s >= 0)
            t[n++] = host->now_ns(host->ctx) - start;
    }
    qsort(t, n, sizeof t[0], compare_u64);
    median = t[n / 2];
    *out = (struct kernels_times){.median_ns = (double)median / per_sample,
                                  .best_ns = (double)t[0] / per_sample,
                                  .worst_ns = (double)t[n - 1] / per_sample,
                                  .n = n};
    return ATSI_OK;
}
