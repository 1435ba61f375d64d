/* SPDX-License-Identifier: Apache-2.0
 * Sessions over a model and a backend made for tests.  The model attends to everything in cache 0
 * and to a window in cache 1, and may have two recurrent states.  The backend does no arithmetic
 * that rounds: each row's logits are a hash of all that the row can see, so that one wrong byte in
 * a visible row or a state shows, and nothing else does. */
#ifndef FAKE_SESSION_H
#define FAKE_SESSION_H

#include <stdbool.h>
#include <stdint.h>

#include "atsinfer/atsinfer.h"
#include "core/session.h"

enum { FAKE_VOCAB = 97, FAKE_NODES = 6, FAKE_VALUES = 8, FAKE_TENSORS = 3, FAKE_META = 4 };

struct fake_model;
struct atsi_loaded {
    const struct fake_model *f;
};

/* Not to be copied: it points to itself.  A test may change what the fingerprint is made of. */
struct fake_model {
    struct atsi_model m;
    struct atsi_loaded loaded;
    struct atsi_loaded_info info;
    struct atsi_graph g;
    struct atsi_graph_value values[FAKE_VALUES];
    struct atsi_graph_node nodes[FAKE_NODES];
    struct atsi_graph_kv kv[2];
    struct atsi_graph_state states[2];
    const struct atsi_graph_value *value_ptrs[FAKE_VALUES];
    const struct atsi_graph_node *node_ptrs[FAKE_NODES];
    const struct atsi_graph_kv *kv_ptrs[2];
    const struct atsi_graph_state *state_ptrs[2];
    struct atsi_tensor tensors[FAKE_TENSORS];
    const struct atsi_tensor *tensor_ptrs[FAKE_TENSORS];
    float weights[FAKE_TENSORS][64];
    const char *name; /* general.name */
    const char *template_text, *words[2];
    uint32_t block_count;
};

/* A runtime with one worker; the program ends when there is none. */
struct atsi_runtime *fake_runtime(void);

/* window: of cache 1; 0: it keeps everything too. */
void fake_model_init(struct fake_model *f, struct atsi_runtime *rt, uint32_t window,
                     bool recurrent);
/* Close with atsi_session_close(). */
struct atsi_session *fake_session(struct fake_model *f, uint32_t n_ctx, uint32_t chunk,
                                  uint32_t type);

/* Evaluates n tokens (ids that depend on `seed` and position); false when that fails. */
bool fake_eval(struct atsi_session *s, uint32_t n, uint32_t seed);

/* Makes the backend's next run fail. */
extern bool fake_backend_fails;

#endif
