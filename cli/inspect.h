/* SPDX-License-Identifier: Apache-2.0
 * What `atsinfer inspect` found out about a file, and its two ways of telling. */
#ifndef ATSI_CLI_INSPECT_H
#define ATSI_CLI_INSPECT_H

#include "cli/cli.h"

/* Tensors by what they are for, judged by their names. */
enum inspect_role {
    INSPECT_EMBEDDING,
    INSPECT_ATTENTION,
    INSPECT_FFN,
    INSPECT_EXPERTS,
    INSPECT_ROUTER,
    INSPECT_NORM,
    INSPECT_HEAD,
    INSPECT_OTHER,
    INSPECT_N_ROLES
};

struct inspect_tally {
    const char *name;
    uint64_t n_tensors, n_elems, n_bytes;
};

#define INSPECT_MAX_TYPES 32 /* types beyond it are counted together in the last */

struct inspect_report {
    const struct atsi_model *model;
    const struct atsi_loaded_info *info;
    const char *path;
    const char *kind;         /* "model", "adapter (LoRA)", ... */
    const char *quantization; /* name of general.file_type, or "" */
    uint64_t n_params;        /* elements of all tensors */
    uint64_t n_active;        /* of them used per token; equal without experts */
    uint64_t n_bytes;         /* of all tensors whose type's size is known */
    uint32_t n_unsized;       /* tensors of types without a known size */
    uint32_t n_types;         /* in `types`, largest share first */
    struct inspect_tally types[INSPECT_MAX_TYPES];
    struct inspect_tally roles[INSPECT_N_ROLES];
    bool show_meta, show_tensors;
    struct atsi_session_info plan; /* of a session with the settings in force ... */
    uint64_t kv_per_token;         /* what a further token adds to its KV cache */
    int plan_status;               /* ... or, when not ATSI_OK, plan_err says why there is none */
    struct atsi_err plan_err;
};

/* The entry "ARCH.name" or, when `name` has no leading dot, `name`.  false when absent. */
bool inspect_meta(const struct inspect_report *r, const char *name, struct atsi_meta *out);
/* Element `i` of an array of numbers, or the scalar itself, as an entry of its own. */
struct atsi_meta inspect_element(const struct atsi_meta *array, uint64_t i);
/* Value of an integer entry or element; false when it is none. */
bool inspect_integer(const struct atsi_meta *v, int64_t *out);
/* "u32", "string[151936]" into buf. */
const char *inspect_type_text(const struct atsi_meta *v, char buf[48]);
/* True for keys that belong to the architecture's hyperparameters. */
bool inspect_is_hparam(const struct inspect_report *r, const struct atsi_meta *v);
/* "f16" or, when keys and values differ, "f16 keys, q8_0 values", into buf. */
const char *inspect_kv_type(const struct inspect_report *r, char buf[48]);
/* Bytes of a tensor; 0 when not known. */
uint64_t inspect_tensor_bytes(const struct atsi_tensor *t);
uint64_t inspect_tensor_elems(const struct atsi_tensor *t);

/* The ids that have a meaning of their own: "bos" for tokenizer.ggml.bos_token_id and so on.
 * NULL after the last. */
extern const char *const inspect_special_tokens[];

void inspect_print_text(const struct inspect_report *r);
/* false: out of memory. */
bool inspect_print_json(const struct inspect_report *r);

#endif
