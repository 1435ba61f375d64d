/* SPDX-License-Identifier: Apache-2.0
 *
 * Views of a model's tensors on the host, and their replacement between rounds.
 */
#include "core/hybrid/weights_inside.h"

#include "core/memory.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#define HUGE_PAGE ((uint64_t)2 << 20)

static void hold(const struct atsi_weights *w)
{
    (void)pthread_mutex_lock(&w->lock->mutex); /* fails for uninitialised or recursive use only */
}

static void let_go(const struct atsi_weights *w)
{
    (void)pthread_mutex_unlock(&w->lock->mutex);
}

/* ---------------------------------------------------------------- open, close */
/* 0 when it overflows, which no loaded tensor does. */
static uint64_t tensor_bytes(const struct atsi_tensor *t)
{
    uint64_t bytes = t->row_bytes;
    for (int d = 1; d < 4; d++)
        if (__builtin_mul_overflow(bytes, t->ne[d], &bytes))
            return 0;
    return bytes;
}

static void fill_views(struct atsi_weights *w)
{
    for (uint32_t i = 0; i < w->n; i++) {
        struct atsi_weight *t = &w->all[i];
        t->tensor = *w->info->tensors[i];
        t->file_data = t->tensor.data;
        t->bytes = tensor_bytes(&t->tensor);
        t->home = t->tensor.data != NULL ? ATSI_HOME_FILE : ATSI_HOME_NONE;
    }
}

static struct atsi_lock *new_lock(void)
{
    struct atsi_lock *lock = malloc(sizeof *lock);
    if (lock != NULL && pthread_mutex_init(&lock->mutex, NULL) != 0) {
        free(lock);
        lock = NULL;
    }
    return lock;
}

int atsi_weights_open(struct atsi_model *m, struct atsi_weights **out, struct atsi_err *err)
{
    struct atsi_weights *w = calloc(1, sizeof *w);
    *out = NULL;
    if (w != NULL) {
        w->model = m;
        w->info = atsi_model_info(m);
        w->n = w->info->n_tensors_all;
        w->version = 1;
        w->all = calloc((size_t)w->n + 1, sizeof *w->all);
        w->lock = new_lock();
    }
    if (w == NULL || w->all == NULL || w->lock == NULL) {
        atsi_weights_close(w);
        return atsi_fail(err, ATSI_ENOMEM, "out of memory for the views of a model's tensors");
    }
    fill_views(w);
    *out = w;
    return ATSI_OK;
}

void atsi_weights_close(struct atsi_weights *w)
{
    if (w == NULL)
        return;
    atsi_pins_close(w);
    while (w->slabs != NULL) {
        struct atsi_slab *older = w->slabs->older;
        (void)munmap(w->slabs->map, w->slabs->bytes); /* cannot fail for what mmap returned */
        free(w->slabs);
        w->slabs = older;
    }
    if (w->lock != NULL) {
        (void)pthread_mutex_destroy(&w->lock->mutex); /* not held: nobody uses it any more */
        free(w->lock);
    }
    free(w->all);
    free(w);
}

/* ---------------------------------------------------------------- views */
const struct atsi_tensor *atsi_weights_tensor(const struct atsi_weights *w, uint32_t tensor)
{
    return tensor < w->n ? &w->all[tensor].tensor : NULL;
}

uint32_t atsi_weights_count(const struct atsi_weights *w)
{
    return w->n;
}

enum atsi_weight_home atsi_weights_home(const struct atsi_weights *w, uint32_t tensor)
{
    enum atsi_weight_home home;
    hold(w);
    home = tensor < w->n ? (enum atsi_weight_home)w->all[tensor].home : ATSI_HOME_NONE;
    let_go(w);
    return home;
}

/* Rows of the piece in each matrix; 0: it does not exist. */
static uint64_t piece_rows(const struct atsi_weights *w, const struct atsi_piece *p)
{
    uint64_t rows;
    if (p->tensor >= w->n)
        return 0;
    rows = w->all[p->tensor].tensor.ne[1];
    if (p->first_row == 0 && p->end_row == 0)
        return rows;
    return p->first_row < p->end_row && p->end_row <= rows ? p->end_row - p->first_row : 0;
}

static uint64_t n_matrices(const struct atsi_tensor *t)
{
    return t->ne[2] * t->ne[3];
}

uint64_t atsi_piece_bytes(const struct atsi_weights *w, const struct atsi_piece *p)
{
    uint64_t rows = piece_rows(w, p);
    const struct atsi_tensor *t;
    if (rows == 0)
        return 0;
    t = &w->all[p->tensor].tensor;
    return rows * t->row_bytes * n_matrices(t); /* no more than the tensor's, which was checked */
}

struct atsi_tensor atsi_weights_view(const struct atsi_weights *w, const struct atsi_piece *p,
                                     void *data)
{
    struct atsi_tensor t = w->all[p->tensor].tensor;
    t.ne[1] = piece_rows(w, p);
    t.data = data;
    return t;
}

/* ---------------------------------------------------------------- rounds */
void atsi_weight_release(struct atsi_weights *w, struct atsi_weight *t)
{
    const struct atsi_loader_ops *ops = w->model->ops;
    uint64_t lead = (ATSI_PAGE - (uintptr_t)t->file_data % ATSI_PAGE) % ATSI_PAGE;
    uint64_t inner = t->bytes > lead ? (t->bytes - lead) / ATSI_PAGE * ATSI_PAGE : 0;
    /* Pages shared with a neighbour stay anyway. */
    t->unreleased = atsi_pin_touches(w, (unsigned char *)t->file_data + lead, inner);
    if (!t->unreleased && ATSI_HAS(ops, struct atsi_loader_ops, release))
        ops->release(w->model->loaded, t->file_data, (size_t)t->bytes);
}

static void adopt(struct atsi_weights *w, struct atsi_weight *t)
{
    bool from_file = t->home == ATSI_HOME_FILE;
    t->tensor.layout = t->next.layout;
    t->tensor.data = t->next.data;
    t->home = t->next.home;
    t->next.waits = false;
    t->coming = false;
    w->version++;
    if (from_file)
        atsi_weight_release(w, t);
}

uint64_t atsi_weights_begin(struct atsi_weights *w)
{
    uint64_t version;
    hold(w);
    if (w->in_round == 0 && w->n_waiting > 0) {
        for (uint32_t i = 0; i < w->n; i++)
            if (w->all[i].next.waits)
                adopt(w, &w->all[i]);
        w->n_waiting = 0;
    }
    w->in_round++;
    version = w->version;
    let_go(w);
    return version;
}

void atsi_weights_end(struct atsi_weights *w)
{
    hold(w);
    if (w->in_round > 0)
        w->in_round--;
    let_go(w);
}

bool atsi_weights_waiting(const struct atsi_weights *w)
{
    bool yes;
    hold(w);
    yes = w->n_waiting > 0;
    let_go(w);
    return yes;
}

/* ---------------------------------------------------------------- replacing */
static uint64_t room_of(uint64_t bytes)
{
    /* A page behind it: kernels may read a little past the last row. */
    return bytes / ATSI_PAGE * ATSI_PAGE + 2 * (uint64_t)ATSI_PAGE;
}

/* Addresses only; 2 MiB-aligned. */
static struct atsi_slab *new_slab(uint64_t bytes)
{
    struct atsi_slab *s = malloc(sizeof *s);
    unsigned char *p;
    uint64_t head;
    if (s == NULL || bytes > SIZE_MAX / 2) {
        free(s);
        return NULL;
    }
    bytes = (bytes + HUGE_PAGE - 1) / HUGE_PAGE * HUGE_PAGE;
    p = mmap(NULL, (size_t)(bytes + HUGE_PAGE), PROT_READ | PROT_WRITE,
             MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (p == MAP_FAILED) {
        free(s);
        return NULL;
    }
    head = (HUGE_PAGE - (uintptr_t)p % HUGE_PAGE) % HUGE_PAGE;
    if (head > 0)
        (void)munmap(p, (size_t)head);
    (void)munmap(p + head + bytes, (size_t)(HUGE_PAGE - head));
    (void)madvise(p + head, (size_t)bytes, MADV_HUGEPAGE); /* a hint: small pages work too */
    s->map = p + head;
    s->bytes = (size_t)bytes;
    return s;
}

int atsi_weights_reserve(struct atsi_weights *w, const uint32_t *list, uint32_t n, void **at,
                         struct atsi_err *err)
{
    uint64_t bytes = 0;
    unsigned char *next = NULL;
    struct atsi_slab *s;
    for (uint32_t k = 0; k < n; k++)
        if (w->all[list[k]].reserved == NULL)
            bytes += room_of(w->all[list[k]].bytes);
    if (bytes > 0) {
        s = new_slab(bytes);
        if (s == NULL)
            return atsi_fail(err, ATSI_ENOMEM, "no addresses for %llu bytes of packed weights",
                             (unsigned long long)bytes);
        next = s->map;
        hold(w);
        s->older = w->slabs;
        w->slabs = s;
        let_go(w);
    }
    for (uint32_t k = 0; k < n; k++) {
        struct atsi_weight *t = &w->all[list[k]];
        if (t->reserved == NULL && next != NULL) {
            t->reserved = next;
            next += room_of(t->bytes);
        }
        at[k] = t->reserved;
    }
    return ATSI_OK;
}

int atsi_weights_keep(struct atsi_weights *w, void *map, size_t bytes)
{
    struct atsi_slab *s = malloc(sizeof *s);
    if (s == NULL)
        return ATSI_ENOMEM;
    *s = (struct atsi_slab){.map = map, .bytes = bytes};
    hold(w);
    s->older = w->slabs;
    w->slabs = s;
    let_go(w);
    return ATSI_OK;
}

void atsi_weights_discard(struct atsi_weights *w, uint32_t tensor)
{
    struct atsi_weight *t = &w->all[tensor];
    hold(w);
    if (t->home != ATSI_HOME_PACKED && !t->next.waits && t->reserved != NULL)
        (void)madvise(t->reserved, (size_t)room_of(t->bytes), MADV_DONTNEED); /* saves memory */
    t->coming = false;
    let_go(w);
}

void atsi_weights_offer(struct atsi_weights *w, uint32_t tensor, enum atsi_layout layout,
                        enum atsi_weight_home home, void *data)
{
    struct atsi_weight *t = &w->all[tensor];
    hold(w);
    if (!t->next.waits)
        w->n_waiting++;
    t->next = (struct atsi_offer){.waits = true, .layout = layout, .home = home, .data = data};
    if (w->in_round == 0) {
        adopt(w, t);
        w->n_waiting--;
    }
    let_go(w);
}

bool atsi_weights_announce(struct atsi_weights *w, uint32_t tensor)
{
    struct atsi_weight *t = &w->all[tensor];
    bool free_to = false;
    hold(w);
    if (!t->coming && !t->next.waits && t->home == ATSI_HOME_FILE)
        t->coming = free_to = true;
    let_go(w);
    return free_to;
}

bool atsi_weights_can_release(const struct atsi_weights *w)
{
    return ATSI_HAS(w->model->ops, struct atsi_loader_ops, release);
}

/* ---------------------------------------------------------------- transfers */
/* Splits [src, src + bytes) where pinned blocks begin and end. */
static uint32_t add_ranges(const struct atsi_weights *w, const unsigned char *src, uint64_t bytes,
                           unsigned char **dst, struct atsi_range *out, uint32_t n, uint32_t room)
{
    while (bytes > 0) {
        uint32_t b = atsi_pin_block_at(w, src);
        uint64_t part = bytes;
        if (b < w->pins.n_blocks) {
            const struct atsi_pin_block *k = &w->pins.blocks[b];
            uint64_t to_edge =
                src < k->start ? (uint64_t)(k->start - src) : (uint64_t)(k->start + k->bytes - src);
            part = to_edge < bytes ? to_edge : bytes;
        }
        if (n < room)
            out[n] = (struct atsi_range){.src = src, .dst = *dst, .bytes = (size_t)part};
        n++;
        src += part;
        *dst += part;
        bytes -= part;
    }
    return n;
}

uint32_t atsi_weights_ranges(const struct atsi_weights *w, const struct atsi_piece *p,
                             uint64_t first, uint64_t n, void *dst, struct atsi_range *out,
                             uint32_t room)
{
    const struct atsi_tensor *t = &w->all[p->tensor].tensor;
    uint64_t rows = piece_rows(w, p), matrix = t->row_bytes * t->ne[1];
    uint64_t step = rows * t->row_bytes;
    const unsigned char *src = t->data;
    unsigned char *to = dst;
    uint32_t count = 0;
    if (rows == 0 || first > n_matrices(t) || n > n_matrices(t) - first)
        return 0;
    src += first * matrix + (p->end_row != 0 ? p->first_row : 0) * t->row_bytes;
    if (rows == t->ne[1]) { /* whole matrices follow without gap */
        step *= n;
        n = n > 0;
    }
    hold(w);
    for (uint64_t k = 0; k < n; k++, src += matrix)
        count = add_ranges(w, src, step, &to, out, count, room);
    let_go(w);
    return count;
}
