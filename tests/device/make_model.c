/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes model files of a given shape whose weights are random blocks, for measuring where no model
 * can be had: make_model SHAPE FILE [LAYERS].
 *
 * Blocks are valid and their scales such that activations keep their size, so kernels see ordinary
 * numbers and routers choose all experts alike; the text such a model writes means nothing.  Types
 * are mixed as in files called Q4_K_M.  Threads fill the mapped file, at the speed of memory.
 */
#include <errno.h>
#include <fcntl.h>
#include <math.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/statvfs.h>
#include <unistd.h>

#define ALIGN UINT64_C(64)
#define MAX_THREADS 64
#define MAX_TENSORS 1024
#define HEAD_BYTES ((size_t)1 << 20)
#define PIECE ((uint64_t)1 << 22) /* bytes a thread takes at a time */

/* ---------------------------------------------------------------- shapes */
struct shape {
    const char *name, *arch;
    uint32_t layers, embd, ff, heads, kv_heads, head_dim, vocab, experts, used, expert_ff;
    float theta;
};

static const struct shape shapes[] = {
    {"dense-8b", "llama", 32, 4096, 14336, 32, 8, 128, 128256, 0, 0, 0, 5e5F},
    {"moe-30b-a3b", "qwen3moe", 48, 2048, 6144, 32, 4, 128, 151936, 128, 8, 768, 1e6F},
    {"tiny-dense", "llama", 4, 256, 768, 4, 2, 64, 1024, 0, 0, 0, 1e4F},
    {"tiny-moe", "qwen3moe", 4, 256, 512, 4, 2, 64, 1024, 16, 4, 256, 1e4F},
};

/* ---------------------------------------------------------------- types of GGUF */
enum { TYPE_F32 = 0, TYPE_Q4_K = 12, TYPE_Q6_K = 14 };
enum { KV_U32 = 4, KV_F32 = 6, KV_STRING = 8 };

struct layout {
    uint32_t type, elems, bytes;
    uint32_t scale[2], n_scales; /* where f16 scales lie in a block */
    double spread;               /* of an element, at a scale of 1, all other bits random */
};

/* Q4_K: d * (0..63) * (0..15) - dmin * (0..63).  With dmin = 7.5 d the mean is 0 and the spread
 * about 240 d.  Q6_K: d * (-128..127) * (-32..31), about 1370 d. */
static const struct layout layouts[] = {
    {TYPE_F32, 1, 4, {0}, 0, 1},
    {TYPE_Q4_K, 256, 144, {0, 2}, 2, 240},
    {TYPE_Q6_K, 256, 210, {208}, 1, 1370},
};

static const struct layout *layout_of(uint32_t type)
{
    for (size_t i = 0; i < sizeof layouts / sizeof layouts[0]; i++)
        if (layouts[i].type == type)
            return &layouts[i];
    return NULL;
}

/* ---------------------------------------------------------------- the file's head */
struct tensor {
    char name[64];
    uint32_t type, n_dims;
    uint64_t ne[3], bytes, offset; /* offset: behind the head */
    bool ones;                     /* a norm */
};

struct model {
    const struct shape *shape;
    uint32_t layers;
    struct tensor tensors[MAX_TENSORS];
    uint32_t n_tensors;
    uint64_t data_bytes;
    unsigned char *head; /* HEAD_BYTES */
    uint64_t n;          /* of head in use */
};

static void fail(const char *fmt, ...) __attribute__((format(printf, 1, 2), noreturn));
static void fail(const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    (void)fputs("make_model: ", stderr);
    (void)vfprintf(stderr, fmt, ap);
    (void)fputc('\n', stderr);
    va_end(ap);
    exit(1);
}

static void put(struct model *m, const void *p, size_t n)
{
    if (n > HEAD_BYTES - m->n)
        fail("the head of the file is larger than %zu bytes", HEAD_BYTES);
    memcpy(m->head + m->n, p, n);
    m->n += n;
}

static void put_u32(struct model *m, uint32_t v)
{
    put(m, &v, sizeof v);
}

static void put_u64(struct model *m, uint64_t v)
{
    put(m, &v, sizeof v);
}

static void put_text(struct model *m, const char *text)
{
    put_u64(m, strlen(text));
    put(m, text, strlen(text));
}

/* "ARCH.NAME", or NAME alone when it holds no leading dot. */
static void put_key(struct model *m, const char *name, uint32_t type)
{
    char key[96];
    (void)snprintf(key, sizeof key, "%s%s", name[0] == '.' ? m->shape->arch : "", name);
    put_text(m, key);
    put_u32(m, type);
}

static void key_u32(struct model *m, const char *name, uint32_t v)
{
    put_key(m, name, KV_U32);
    put_u32(m, v);
}

static void key_f32(struct model *m, const char *name, float v)
{
    put_key(m, name, KV_F32);
    put(m, &v, sizeof v);
}

static void key_text(struct model *m, const char *name, const char *v)
{
    put_key(m, name, KV_STRING);
    put_text(m, v);
}

/* ---------------------------------------------------------------- tensors */
static void add(struct model *m, uint32_t type, const uint64_t ne[3], const char *fmt, ...)
    __attribute__((format(printf, 4, 5)));
static void add(struct model *m, uint32_t type, const uint64_t ne[3], const char *fmt, ...)
{
    const struct layout *l = layout_of(type);
    struct tensor *t = &m->tensors[m->n_tensors];
    va_list ap;
    if (m->n_tensors == MAX_TENSORS)
        fail("more than %d tensors", MAX_TENSORS);
    va_start(ap, fmt);
    (void)vsnprintf(t->name, sizeof t->name, fmt, ap);
    va_end(ap);
    t->type = type;
    t->n_dims = ne[2] > 1 ? 3 : ne[1] > 1 ? 2 : 1;
    memcpy(t->ne, ne, sizeof t->ne);
    t->bytes = ne[0] / l->elems * l->bytes * ne[1] * ne[2];
    t->offset = m->data_bytes;
    t->ones = strstr(t->name, "norm") != NULL;
    m->data_bytes += (t->bytes + ALIGN - 1) / ALIGN * ALIGN;
    m->n_tensors++;
}

#define NE(...)                                                                                    \
    (const uint64_t[3])                                                                            \
    {                                                                                              \
        __VA_ARGS__                                                                                \
    }

/* Layers whose values and down projections get more bits. */
static uint32_t better(uint32_t layer, uint32_t n)
{
    bool yes = layer < n / 8 || layer >= 7 * n / 8 || (layer - n / 8) % 3 == 2;
    return yes ? TYPE_Q6_K : TYPE_Q4_K;
}

static void add_layer(struct model *m, uint32_t i)
{
    const struct shape *s = m->shape;
    uint64_t d = s->embd, q = (uint64_t)s->heads * s->head_dim,
             kv = (uint64_t)s->kv_heads * s->head_dim;
    uint32_t more = better(i, m->layers);
    add(m, TYPE_F32, NE(d, 1, 1), "blk.%u.attn_norm.weight", i);
    add(m, TYPE_Q4_K, NE(d, q, 1), "blk.%u.attn_q.weight", i);
    add(m, TYPE_Q4_K, NE(d, kv, 1), "blk.%u.attn_k.weight", i);
    add(m, more, NE(d, kv, 1), "blk.%u.attn_v.weight", i);
    add(m, TYPE_Q4_K, NE(q, d, 1), "blk.%u.attn_output.weight", i);
    add(m, TYPE_F32, NE(d, 1, 1), "blk.%u.ffn_norm.weight", i);
    if (s->experts == 0) {
        add(m, TYPE_Q4_K, NE(d, s->ff, 1), "blk.%u.ffn_gate.weight", i);
        add(m, TYPE_Q4_K, NE(d, s->ff, 1), "blk.%u.ffn_up.weight", i);
        add(m, more, NE(s->ff, d, 1), "blk.%u.ffn_down.weight", i);
        return;
    }
    add(m, TYPE_F32, NE(s->head_dim, 1, 1), "blk.%u.attn_q_norm.weight", i);
    add(m, TYPE_F32, NE(s->head_dim, 1, 1), "blk.%u.attn_k_norm.weight", i);
    add(m, TYPE_F32, NE(d, s->experts, 1), "blk.%u.ffn_gate_inp.weight", i);
    add(m, TYPE_Q4_K, NE(d, s->expert_ff, s->experts), "blk.%u.ffn_gate_exps.weight", i);
    add(m, TYPE_Q4_K, NE(d, s->expert_ff, s->experts), "blk.%u.ffn_up_exps.weight", i);
    add(m, more, NE(s->expert_ff, d, s->experts), "blk.%u.ffn_down_exps.weight", i);
}

static void describe(struct model *m)
{
    const struct shape *s = m->shape;
    add(m, TYPE_Q4_K, NE(s->embd, s->vocab, 1), "token_embd.weight");
    for (uint32_t i = 0; i < m->layers; i++)
        add_layer(m, i);
    add(m, TYPE_F32, NE(s->embd, 1, 1), "output_norm.weight");
    add(m, TYPE_Q6_K, NE(s->embd, s->vocab, 1), "output.weight");
}

static void write_head(struct model *m)
{
    const struct shape *s = m->shape;
    put(m, "GGUF", 4);
    put_u32(m, 3);
    put_u64(m, m->n_tensors);
    put_u64(m, s->experts > 0 ? 18 : 15);
    key_text(m, "general.architecture", s->arch);
    key_text(m, "general.name", s->name);
    key_u32(m, "general.alignment", ALIGN);
    key_text(m, "tokenizer.ggml.model", "no_vocab"); /* so that llama.cpp asks for no words */
    key_u32(m, ".vocab_size", s->vocab);
    key_u32(m, ".block_count", m->layers);
    key_u32(m, ".context_length", 32768);
    key_u32(m, ".embedding_length", s->embd);
    key_u32(m, ".feed_forward_length", s->ff);
    key_u32(m, ".attention.head_count", s->heads);
    key_u32(m, ".attention.head_count_kv", s->kv_heads);
    key_u32(m, ".attention.key_length", s->head_dim);
    key_u32(m, ".attention.value_length", s->head_dim);
    key_f32(m, ".attention.layer_norm_rms_epsilon", 1e-6F);
    key_f32(m, ".rope.freq_base", s->theta);
    if (s->experts > 0) {
        key_u32(m, ".expert_count", s->experts);
        key_u32(m, ".expert_used_count", s->used);
        key_u32(m, ".expert_feed_forward_length", s->expert_ff);
    }
    for (uint32_t i = 0; i < m->n_tensors; i++) {
        const struct tensor *t = &m->tensors[i];
        put_text(m, t->name);
        put_u32(m, t->n_dims);
        for (uint32_t k = 0; k < t->n_dims; k++)
            put_u64(m, t->ne[k]);
        put_u32(m, t->type);
        put_u64(m, t->offset);
    }
    m->n = (m->n + ALIGN - 1) / ALIGN * ALIGN;
}

/* ---------------------------------------------------------------- numbers */
/* Of a small positive number, also a subnormal one. */
static uint16_t to_f16(double x)
{
    int e;
    double f = frexp(x, &e); /* x = f * 2^e, f in [0.5, 1) */
    if (e < -13)
        return (uint16_t)lround(ldexp(x, 24)); /* units of 2^-24 */
    return (uint16_t)(((uint32_t)(e + 14) << 10) + (uint32_t)lround(ldexp(f - 0.5, 11)));
}

static uint64_t next_random(uint64_t *state)
{
    uint64_t z = *state += UINT64_C(0x9e3779b97f4a7c15);
    z = (z ^ (z >> 31)) * UINT64_C(0xbf58476d1ce4e5b9);
    return z ^ (z >> 29);
}

static void fill_blocks(const struct tensor *t, unsigned char *at, uint64_t n, uint64_t seed)
{
    const struct layout *l = layout_of(t->type);
    double scale = 1 / (l->spread * sqrt((double)t->ne[0]));
    uint16_t d = to_f16(scale), more = to_f16(7.5 * scale);
    for (uint64_t i = 0; i + 8 <= n; i += 8) {
        uint64_t r = next_random(&seed);
        memcpy(at + i, &r, 8);
    }
    for (uint64_t i = 0; i + l->bytes <= n; i += l->bytes) {
        memcpy(at + i + l->scale[0], &d, sizeof d);
        if (l->n_scales > 1)
            memcpy(at + i + l->scale[1], &more, sizeof more);
    }
}

static void fill_floats(const struct tensor *t, unsigned char *at, uint64_t n, uint64_t seed)
{
    for (uint64_t i = 0; i < n; i += 4) {
        double u = (double)(next_random(&seed) >> 11) / 9007199254740992.0 - 0.5;
        float x = t->ones ? 1.0F + (float)u * 0.1F : (float)(u * 3.4 / sqrt((double)t->ne[0]));
        memcpy(at + i, &x, sizeof x);
    }
}

/* ---------------------------------------------------------------- filling the file */
struct job {
    const struct model *m;
    unsigned char *data;
    pthread_mutex_t lock;
    uint32_t tensor; /* next piece */
    uint64_t at;
};

static bool take(struct job *j, uint32_t *tensor, uint64_t *at, uint64_t *n)
{
    bool more;
    (void)pthread_mutex_lock(&j->lock);
    while (j->tensor < j->m->n_tensors && j->at >= j->m->tensors[j->tensor].bytes) {
        j->tensor++;
        j->at = 0;
    }
    more = j->tensor < j->m->n_tensors;
    if (more) {
        const struct tensor *t = &j->m->tensors[j->tensor];
        uint64_t piece = PIECE / layout_of(t->type)->bytes * layout_of(t->type)->bytes;
        *tensor = j->tensor;
        *at = j->at;
        *n = t->bytes - j->at < piece ? t->bytes - j->at : piece;
        j->at += *n;
    }
    (void)pthread_mutex_unlock(&j->lock);
    return more;
}

static void *fill(void *arg)
{
    struct job *j = arg;
    uint32_t i;
    uint64_t at, n;
    while (take(j, &i, &at, &n)) {
        const struct tensor *t = &j->m->tensors[i];
        uint64_t seed = ((uint64_t)i << 40) + at;
        if (t->type == TYPE_F32)
            fill_floats(t, j->data + t->offset + at, n, seed);
        else
            fill_blocks(t, j->data + t->offset + at, n, seed);
    }
    return NULL;
}

static void fill_all(const struct model *m, unsigned char *data)
{
    struct job j = {.m = m, .data = data, .lock = PTHREAD_MUTEX_INITIALIZER};
    pthread_t threads[MAX_THREADS];
    long cpus = sysconf(_SC_NPROCESSORS_ONLN);
    int n = 0, want = cpus < 1 ? 1 : cpus > MAX_THREADS ? MAX_THREADS : (int)cpus;
    while (n < want - 1 && pthread_create(&threads[n], NULL, fill, &j) == 0)
        n++;
    (void)fill(&j);
    for (int i = 0; i < n; i++)
        (void)pthread_join(threads[i], NULL); /* they were created, and are joined once */
}

static void write_file(const struct model *m, const char *path)
{
    uint64_t bytes = m->n + m->data_bytes;
    struct statvfs fs;
    unsigned char *p;
    int fd = open(path, O_RDWR | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
    if (fd < 0)
        fail("%s: %s", path, strerror(errno));
    if (fstatvfs(fd, &fs) == 0 && (uint64_t)fs.f_bavail * fs.f_frsize < bytes) {
        (void)unlink(path); /* empty */
        fail("%s: %llu MiB are needed and %llu MiB free there", path,
             (unsigned long long)(bytes >> 20),
             (unsigned long long)((uint64_t)fs.f_bavail * fs.f_frsize >> 20));
    }
    p = ftruncate(fd, (off_t)bytes) == 0
            ? mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, fd, 0)
            : MAP_FAILED;
    if (p == MAP_FAILED)
        fail("%s: %s", path, strerror(errno));
    memcpy(p, m->head, m->n);
    fill_all(m, p + m->n);
    if (munmap(p, bytes) != 0 || close(fd) != 0)
        fail("%s: %s", path, strerror(errno));
    (void)printf("%s: %u layers, %.2f GiB\n", m->shape->name, m->layers,
                 (double)bytes / 1073741824.0);
}

int main(int argc, char **argv)
{
    static struct model m;
    long layers = argc == 4 ? strtol(argv[3], NULL, 10) : 0;
    for (size_t i = 0; argc >= 3 && i < sizeof shapes / sizeof shapes[0]; i++)
        if (strcmp(argv[1], shapes[i].name) == 0)
            m.shape = &shapes[i];
    if (m.shape == NULL || argc > 4 || (argc == 4 && (layers < 1 || layers > 96))) {
        (void)fputs("usage: make_model SHAPE FILE [LAYERS]; shapes:", stderr);
        for (size_t i = 0; i < sizeof shapes / sizeof shapes[0]; i++)
            (void)fprintf(stderr, " %s", shapes[i].name);
        (void)fputc('\n', stderr);
        return 2;
    }
    m.layers = layers > 0 ? (uint32_t)layers : m.shape->layers;
    m.head = calloc(1, HEAD_BYTES);
    if (m.head == NULL)
        fail("out of memory");
    describe(&m);
    write_head(&m);
    write_file(&m, argv[2]);
    free(m.head);
    return 0;
}
