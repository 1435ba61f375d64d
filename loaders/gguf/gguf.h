/* SPDX-License-Identifier: Apache-2.0
 *
 * What the container offers to the graph builders of loaders/arch/: checked metadata, the tensor
 * directory, and a place for the finished graph.
 *
 * Every function that can fail writes one sentence that names the key or tensor and the two values
 * that disagree; the name of the file is put in front where the call left the plugin, so builders
 * must not add it.  All functions: [one thread per model at a time].
 */
#ifndef GGUF_H
#define GGUF_H

#include <stdbool.h>
#include <stdint.h>

#include "atsinfer/loader.h"
#include "atsinfer/plugin.h"

/* ---------------------------------------------------------------- metadata */
/* Keys that begin with a dot are those of the architecture: ".block_count" reads
 * "qwen3.block_count" when general.architecture is "qwen3". */

/* Value of general.architecture, "" when absent.  [borrowed until close] */
const char *gguf_arch(const struct atsi_loaded *m);

/* ATSI_OK, or ATSI_ENOENT when the key is absent.  out->struct_size is set here. */
int gguf_meta_find(const struct atsi_loaded *m, const char *key, struct atsi_meta *out);

enum gguf_need {
    GGUF_REQUIRED, /* an absent key is an error (ATSI_EFORMAT) */
    GGUF_OPTIONAL  /* an absent key leaves *inout as it is: put the default there first */
};

/* Any integer type (or bool) whose value lies in min..max.  ATSI_EFORMAT otherwise. */
int gguf_get_u32(const struct atsi_loaded *m, const char *key, enum gguf_need need, uint32_t min,
                 uint32_t max, uint32_t *inout, struct atsi_err *err);
/* f32, f64 or any integer; finite. */
int gguf_get_f32(const struct atsi_loaded *m, const char *key, enum gguf_need need, float *inout,
                 struct atsi_err *err);
/* bool, or an integer 0 or 1. */
int gguf_get_bool(const struct atsi_loaded *m, const char *key, enum gguf_need need, bool *inout,
                  struct atsi_err *err);
int gguf_get_str(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                 struct atsi_str *inout, struct atsi_err *err);
/* A scalar (the value of all n layers) or an integer array of exactly n entries; each in min..max.
 * n: the block count. */
int gguf_get_u32_layers(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                        uint32_t min, uint32_t max, uint32_t n, uint32_t *inout,
                        struct atsi_err *err);
/* Number of elements of an array whose elements are of `elem_type` (enum atsi_meta_type). */
int gguf_get_array_len(const struct atsi_loaded *m, const char *key, enum gguf_need need,
                       uint32_t elem_type, uint64_t *inout, struct atsi_err *err);

/* ---------------------------------------------------------------- tensors */
/* Index of a tensor in atsi_loaded_info.tensors, or -1. */
int gguf_tensor_find(const struct atsi_loaded *m, const char *name);
/* index: 0 .. gguf_n_tensors() - 1.  Constants follow the tensors of the file. */
const struct atsi_tensor *gguf_tensor(const struct atsi_loaded *m, int index);
uint32_t gguf_n_tensors(const struct atsi_loaded *m);

/* Appends a tensor owned by the loader (copied from `data`, densely packed rows) and returns its
 * index, or ATSI_ENOMEM, or ATSI_EINVAL for a bad type, shape or a name already in use. */
int gguf_add_constant(struct atsi_loaded *m, const char *name, uint32_t type, uint32_t n_dims,
                      const uint64_t *ne, const void *data, struct atsi_err *err);

/* ---------------------------------------------------------------- graph */
/* Gives the graph to the model, which calls free_fn(free_arg) (may be NULL) at close. */
void gguf_set_graph(struct atsi_loaded *m, const struct atsi_graph *g, void (*free_fn)(void *),
                    void *free_arg);

/* Logs through the host, as "gguf". */
void gguf_log(const struct atsi_loaded *m, enum atsi_log_level level, const char *fmt, ...)
    ATSI_PRINTF(3, 4);

#endif
