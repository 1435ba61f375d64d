/* SPDX-License-Identifier: Apache-2.0
 * One operation with tensors of random numbers, for checking and timing. */
#include "cli/kernels_probe.h"

#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>

#include "panel/pack.h"

#define HUGE_PAGE ((size_t)2 << 20)

/* Large blocks begin at a large page and ask for such pages: small ones halve the speed of reading.
 */
static void *allocate(size_t bytes)
{
    size_t align = bytes >= HUGE_PAGE ? HUGE_PAGE : 64;
    void *p = aligned_alloc(align, (bytes + align - 1) / align * align);
    if (p != NULL && align == HUGE_PAGE)
        (void)madvise(p, bytes, MADV_HUGEPAGE); /* a hint */
    return p;
}

size_t kernels_bytes_of(const struct atsi_tensor *t)
{
    return (size_t)(t->row_bytes * t->ne[1] * t->ne[2]);
}

/* Memory for a tensor; NULL: there is none, which the probe remembers. */
static struct atsi_tensor *shape(struct kernels_probe *p, uint32_t type, uint64_t ne0, uint64_t ne1,
                                 uint64_t ne2)
{
    struct atsi_tensor *t = &p->t[p->n++];
    *t = (struct atsi_tensor){.struct_size = sizeof *t,
                              .type = type,
                              .n_dims = ne2 > 1 ? 3 : (ne1 > 1 ? 2 : 1),
                              .ne = {ne0, ne1, ne2, 1},
                              .row_bytes = atsi_row_bytes(type, ne0),
                              .name = "kernels"};
    t->data = allocate(kernels_bytes_of(t));
    p->out_of_memory = p->out_of_memory || t->data == NULL;
    return t;
}

const struct atsi_tensor *kernels_tensor(struct kernels_probe *p, uint32_t type, uint64_t ne0,
                                         uint64_t ne1, uint64_t ne2)
{
    struct atsi_tensor *t = shape(p, type, ne0, ne1, ne2);
    if (t->data != NULL && type == ATSI_TYPE_I32)
        memset(t->data, 0, kernels_bytes_of(t));
    else if (t->data != NULL)
        kernels_fill(type, t->data, (size_t)(ne0 * ne1 * ne2), &p->random);
    return t;
}

const struct atsi_tensor *kernels_tensor_copies(struct kernels_probe *p, uint32_t type,
                                                uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    struct atsi_tensor *t = shape(p, type, ne0, ne1, ne2);
    size_t each = (size_t)(t->row_bytes * ne1);
    if (t->data == NULL)
        return t;
    kernels_fill(type, t->data, (size_t)(ne0 * ne1), &p->random);
    for (uint64_t i = 1; i < ne2; i++)
        memcpy((unsigned char *)t->data + i * each, t->data, each);
    return t;
}

const struct atsi_tensor *kernels_packed(struct kernels_probe *p, const struct atsi_tensor *rows)
{
    const struct atsi_panel_matrix m = {rows->type, rows->ne[0], rows->ne[1], rows->ne[2]};
    struct atsi_tensor *t = shape(p, rows->type, rows->ne[0], rows->ne[1], rows->ne[2]);
    t->layout = ATSI_LAYOUT_PANELS;
    if (t->data != NULL && rows->data != NULL)
        atsi_panel_convert(&m, 0, atsi_panel_parts(&m), 0, rows->data, t->data);
    return t;
}

const struct atsi_tensor *kernels_integers(struct kernels_probe *p, uint64_t ne0, uint64_t ne1,
                                           int32_t step, int32_t modulus, int32_t first)
{
    const struct atsi_tensor *t = kernels_tensor(p, ATSI_TYPE_I32, ne0, ne1, 1);
    int32_t *x = t->data;
    for (uint64_t i = 0; x != NULL && i < ne0 * ne1; i++)
        x[i] = (int32_t)((int64_t)i * step % modulus) + first;
    return t;
}

void kernels_state(struct kernels_probe *p, uint64_t ne0, uint64_t ne1, uint64_t ne2)
{
    const struct atsi_tensor *t = kernels_tensor(p, ATSI_TYPE_F32, ne0, ne1, ne2);
    p->state_start = malloc(kernels_bytes_of(t));
    if (p->state_start == NULL)
        p->out_of_memory = true;
    else if (t->data != NULL)
        memcpy(p->state_start, t->data, kernels_bytes_of(t));
    p->op.state = t;
}

void kernels_tensor_drop(struct atsi_tensor *t)
{
    free(t->data);
    t->data = NULL;
}

void kernels_probe_close(struct kernels_probe *p)
{
    for (uint32_t i = 0; i < p->n; i++)
        free(p->t[i].data);
    free(p->state_start);
}
