/* SPDX-License-Identifier: Apache-2.0
 *
 * An open model: its shards, what kind of file it is, its tensors, constants and graph. */
#ifndef GGUF_LOADED_H
#define GGUF_LOADED_H

#include "file.h"
#include "gguf.h"
#include "index.h"

/* The tensor array never moves, so that pointers into it stay valid while constants are added. */
#define GGUF_MAX_CONSTANTS 256

/* A tensor of the loader's own, with its data behind it in one allocation. */
struct gguf_constant {
    struct atsi_tensor tensor;
    char name[64];
    _Alignas(64) unsigned char data[];
};

struct atsi_loaded {
    const struct atsi_host *host; /* [borrowed] */
    struct gguf_shard *shards;
    uint32_t n_shards;
    struct atsi_loaded_info info;
    char format[16], arch[64];
    uint32_t no_weights; /* as in the parameters */

    struct atsi_tensor *file_tensors;   /* info.n_tensors */
    char *names;                        /* their names, NUL-terminated, one after the other */
    char *unknown_types;                /* names of types without a name */
    const struct atsi_tensor **tensors; /* with constants; room for GGUF_MAX_CONSTANTS more */
    const char **type_names;
    struct atsi_str *index_names;
    struct gguf_index index;
    struct gguf_constant *constants[GGUF_MAX_CONSTANTS];

    const struct atsi_graph *graph;
    int graph_status;          /* of a failed build, which is not tried again ... */
    struct atsi_err graph_err; /* ... and its words */
    void (*graph_free)(void *);
    void *graph_free_arg;
};

/* Opens the file (and its companions) at `path`.  Words of an error name the file. */
int gguf_loaded_open(const struct atsi_host *host, const char *path,
                     const struct atsi_load_params *params, struct atsi_loaded **out,
                     struct atsi_err *err);
void gguf_loaded_close(struct atsi_loaded *m); /* NULL is allowed */
/* Types without kernels are fine to look at, not to compute with: ATSI_ENOTSUP. */
int gguf_loaded_check_types(const struct atsi_loaded *m, struct atsi_err *err);
/* "an adapter (general.type 'adapter')" and the like, for refusals, into buf. */
const char *gguf_loaded_what(const struct atsi_loaded *m, char buf[160]);

#endif
