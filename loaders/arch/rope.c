/* SPDX-License-Identifier: Apache-2.0
 *
 * Angular frequencies of the rotary embedding, in double, rounded once.
 *
 *   base:    theta_i = pos * base^(-2i/n_rot) / f_i          f_i: rope_freqs tensor (Llama 3), else
 * 1 linear:  theta_i * s                                     s = 1 / factor YaRN:    theta_i * (s *
 * (1 - ramp_i) + ramp_i)           arXiv 2309.00071, section 3.2, rounded and cos, sin times 1 +
 * 0.1 ln(factor)           outward as GGUF engines do
 */
#include "loaders/arch/rope.h"

#include <math.h>
#include <string.h>

enum scaling { SCALING_LINEAR, SCALING_YARN };

struct rope_keys {
    double base, factor; /* factor 0: no scaling */
    double n_ctx_orig, attn_factor;
    enum scaling scaling;
};

static bool is(struct atsi_str s, const char *word)
{
    return s.len == strlen(word) && memcmp(s.ptr, word, s.len) == 0;
}

static float optional_f32(struct arch_builder *b, const char *key, float def)
{
    float x = def;
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_f32(b->m, key, GGUF_OPTIONAL, &x, b->err);
    return x;
}

static void read_scaling_type(struct arch_builder *b, struct rope_keys *k)
{
    struct atsi_str type = {"linear", 6};
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_str(b->m, ".rope.scaling.type", GGUF_OPTIONAL, &type, b->err);
    if (b->rc != ATSI_OK)
        return;
    k->scaling = is(type, "yarn") ? SCALING_YARN : SCALING_LINEAR;
    if (is(type, "none"))
        k->factor = 0;
    else if (!is(type, "linear") && !is(type, "yarn"))
        arch_fail(b, ATSI_ENOTSUP,
                  "rope.scaling.type \"%.*s\" is not supported; known: none, linear, yarn",
                  (int)(type.len < 32 ? type.len : 32), type.ptr);
}

static void read_keys(struct arch_builder *b, struct rope_keys *k)
{
    uint32_t orig = b->hp.n_ctx_train;
    k->base = (double)optional_f32(b, ".rope.freq_base", 10000.0F);
    k->factor = (double)optional_f32(b, ".rope.scale_linear", 0.0F);
    k->factor = (double)optional_f32(b, ".rope.scaling.factor", (float)k->factor);
    k->attn_factor = (double)optional_f32(b, ".rope.scaling.attn_factor", 1.0F);
    if (b->rc == ATSI_OK)
        b->rc = gguf_get_u32(b->m, ".rope.scaling.original_context_length", GGUF_OPTIONAL, 1,
                             INT32_MAX, &orig, b->err);
    k->n_ctx_orig = (double)orig;
    read_scaling_type(b, k);
    if (b->rc == ATSI_OK && !(k->base > 1.0))
        arch_fail(b, ATSI_EFORMAT, "rope.freq_base %g: expected more than 1", k->base);
    if (b->rc == ATSI_OK && !(k->factor >= 0.0))
        arch_fail(b, ATSI_EFORMAT, "rope.scaling.factor %g is negative", k->factor);
}

/* Dimension at which `turns` full turns fit into the original context. */
static double yarn_dim(const struct rope_keys *k, double n_rot, double turns)
{
    return n_rot * log(k->n_ctx_orig / (turns * 2.0 * 3.14159265358979323846)) /
           (2.0 * log(k->base));
}

static double yarn_ramp(const struct rope_keys *k, double n_rot, double i)
{
    double low = fmax(0.0, floor(yarn_dim(k, n_rot, 32.0)));
    double high = fmin(n_rot - 1.0, ceil(yarn_dim(k, n_rot, 1.0)));
    double at = (i - low) / fmax(0.001, high - low);
    return 1.0 - fmin(1.0, fmax(0.0, at));
}

static double frequency(const struct rope_keys *k, double n_rot, uint32_t i, double divisor)
{
    double f = pow(k->base, -2.0 * (double)i / n_rot) / divisor;
    double s = k->factor > 0.0 ? 1.0 / k->factor : 1.0;
    if (k->scaling == SCALING_YARN && k->factor > 0.0) {
        double ramp = yarn_ramp(k, n_rot, (double)i);
        return f * (s * (1.0 - ramp) + ramp);
    }
    return f * s;
}

static float magnitude(const struct rope_keys *k)
{
    double m = k->attn_factor;
    if (k->scaling == SCALING_YARN && k->factor > 0.0)
        m *= 1.0 + 0.1 * log(k->factor);
    return (float)m;
}

void arch_rope_setup(struct arch_builder *b, int32_t pos, int32_t *table_out)
{
    float freqs[512]; /* head dimensions are at most 1024 */
    struct rope_keys k = {0};
    uint32_t half = b->hp.n_rot / 2;
    const float *divisors = NULL;
    int32_t w;
    *table_out = -1;
    read_keys(b, &k);
    w = arch_tensor_opt(b, "rope_freqs.weight", (struct arch_shape){{half}});
    if (b->rc != ATSI_OK)
        return;
    if (w >= 0) {
        const struct atsi_tensor *t = gguf_tensor(b->m, w);
        if (t->type != ATSI_TYPE_F32)
            arch_fail(b, ATSI_ENOTSUP, "tensor rope_freqs.weight must be F32");
        divisors = t->data; /* NULL when the graph is for planning only */
    }
    for (uint32_t i = 0; i < half && b->rc == ATSI_OK; i++) {
        double d = divisors != NULL ? (double)divisors[i] : 1.0;
        if (!(d > 0.0) || !isfinite(d))
            arch_fail(b, ATSI_EFORMAT, "tensor rope_freqs.weight: entry %u is %g", i, d);
        freqs[i] = (float)frequency(&k, (double)b->hp.n_rot, i, d);
    }
    if (b->rc == ATSI_OK)
        *table_out = arch_rope_table(
            b, "rope_table", pos, arch_constant(b, "rope.frequencies", half, freqs), magnitude(&k));
}
