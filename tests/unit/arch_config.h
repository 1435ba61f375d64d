/* SPDX-License-Identifier: Apache-2.0
 *
 * Models of the supported architectures from their configuration: the keys and tensors that files
 * of the family hold, at any size. */
#ifndef ARCH_CONFIG_H
#define ARCH_CONFIG_H

#include "tests/unit/arch_model.h"

struct am_config {
    const char *arch;
    uint32_t n_layer, n_nextn; /* executed layers; next-token-prediction blocks behind them */
    uint32_t n_embd, n_head, n_head_kv, head_dim;
    uint32_t n_rot; /* 0: no key */
    uint32_t n_ff, n_expert, n_used, n_ff_expert, n_ff_shared;
    uint32_t nk, nv, state, taps, interval; /* delta net; interval 0: none */
    uint32_t n_vocab, n_ctx, window;
    float rope_base, eps;
    float yarn;      /* rope.scaling.factor; 0: no scaling */
    uint32_t n_orig; /* original context of YaRN */
    bool tied;       /* no output.weight */
    bool bias;       /* q, k and v have biases */
    bool rope_freqs; /* divisors of Llama 3 */
};

/* Layer i of n_layer has a delta net. */
bool am_is_recurrent(const struct am_config *c, uint32_t layer);
/* holes: tensors without values. */
void am_build(struct am *m, const struct am_config *c, bool holes);

/* Tiny models, one per architecture: "llama", "mixtral" (llama with experts), "qwen2", "qwen3",
 * "qwen3moe", "glm4", "gpt-oss", "qwen3next", "qwen35", "qwen35moe". */
struct am_config am_tiny(const char *name);
extern const char *const am_tiny_names[]; /* NULL after the last */

#endif
