/* SPDX-License-Identifier: Apache-2.0
 *
 * A model as a list of keys and tensors that tests change before they write it: what is equal by
 * its mathematics can be written in two ways and compared.
 *
 * A tensor's values depend on its name alone, so that the same name means the same values in two
 * models.  Keys that begin with a dot are those of the architecture.  Everything here fails the
 * test program when memory is out or a name is not there. */
#ifndef ARCH_MODEL_H
#define ARCH_MODEL_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define AM_NAME 64

struct am_key {
    char name[AM_NAME];
    uint32_t type;      /* enum atsi_meta_type */
    uint32_t elem_type; /* of an array */
    uint64_t count;     /* of an array */
    void *data;         /* packed little-endian value or elements; text of a string */
    size_t bytes;
};

struct am_tensor {
    char name[AM_NAME];
    uint32_t n_dims, type; /* enum atsi_type */
    uint64_t ne[3];
    float *data; /* NULL: a hole in the file */
};

struct am {
    char arch[24];
    bool holes; /* tensors added from now on have no values */
    uint32_t n_vocab;
    struct am_key *keys;
    size_t n_keys, cap_keys;
    struct am_tensor *tensors;
    size_t n_tensors, cap_tensors;
};

void am_free(struct am *m);

/* ---- keys: each sets a new key or replaces the one of that name */
void am_u32(struct am *m, const char *key, uint32_t v);
void am_f32(struct am *m, const char *key, float v);
void am_str(struct am *m, const char *key, const char *v);
void am_array(struct am *m, const char *key, uint32_t elem_type, const uint32_t *v, uint64_t n);
/* A scalar of any type that holds an integer. */
void am_int(struct am *m, const char *key, uint32_t type, uint64_t v);
void am_drop_key(struct am *m, const char *key);

/* ---- tensors; names are printf-formatted with `layer` */
/* Values: norms about 1, decays below 0, others about 0 with a size that keeps activations alive.
 * ne: 0 after the last dimension.  [borrowed until the next one is added or dropped] */
struct am_tensor *am_add(struct am *m, int layer, const char *fmt, uint64_t ne0, uint64_t ne1,
                         uint64_t ne2);
struct am_tensor *am_tensor(struct am *m, int layer, const char *fmt);
bool am_has(const struct am *m, int layer, const char *fmt);
void am_drop(struct am *m, int layer, const char *fmt);
uint64_t am_elems(const struct am_tensor *t);
/* Puts the n tensors after one another along dimension `dim` into a new one that replaces them. */
void am_join(struct am *m, int layer, const char *out, uint32_t dim, const char *const *parts,
             size_t n);
/* Entry i along `dim` becomes what entry from[i] was; `n` entries stay afterwards. */
void am_pick(struct am_tensor *t, uint32_t dim, const uint32_t *from, uint64_t n);
/* A copy under another name. */
void am_copy(struct am *m, int layer, const char *from, const char *to);
/* Deep copy. */
void am_clone(const struct am *m, struct am *out);

/* Writes the file; token texts "t0".. when n_vocab is not 0.  Tensors without values become holes.
 * false: the file system refuses a file of that size. */
bool am_save(const struct am *m, const char *path);
/* Bytes of it before the first tensor's. */
size_t am_head_bytes(const struct am *m);

#endif
