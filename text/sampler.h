/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the next token from logits.  Same parameters, same seed, same logits: same token.
 *
 * Order: logit bias, penalties, then (unless greedy) top-k, typical, top-p, min-p, temperature,
 * draw.
 */
#ifndef ATSI_TEXT_SAMPLER_H
#define ATSI_TEXT_SAMPLER_H

#include "atsinfer/status.h"

#include <stddef.h>

struct atsi_logit_bias {
    int32_t id;
    float bias; /* added; -INFINITY forbids */
};

struct atsi_sampler_params {
    float temp;             /* <= 0: greedy, lowest id on a tie */
    uint32_t top_k;         /* 0: off */
    float top_p;            /* 1: off */
    float min_p;            /* 0: off */
    float typical_p;        /* 1: off */
    float penalty_repeat;   /* 1: off */
    float penalty_presence; /* 0: off */
    float penalty_freq;     /* 0: off */
    int32_t penalty_last_n; /* tokens looked at; 0: off, -1: all since open */
    uint64_t seed;
    const struct atsi_logit_bias *bias; /* n_bias entries, copied */
    size_t n_bias;
};

/* The defaults users of llama.cpp expect: temp 0.8, top_k 40, top_p 0.95, min_p 0.05, the rest off,
 * penalty_last_n 64. */
void atsi_sampler_defaults(struct atsi_sampler_params *p);

struct atsi_sampler;
/* ATSI_EINVAL names the parameter that is out of range (NaN, negative, an id >= n_vocab). */
int atsi_sampler_open(const struct atsi_sampler_params *p, uint32_t n_vocab,
                      struct atsi_sampler **out, struct atsi_err *err);
void atsi_sampler_close(struct atsi_sampler *s); /* NULL is allowed */
/* The next token; may change `logits`.  No allocation.  NaN logits are never chosen; ATSI_EFAIL (a
 * negative value) when no logit is finite. */
int32_t atsi_sampler_next(struct atsi_sampler *s, float *logits);
/* How many of the largest logits decide the next token as all of them do; 0: all are needed (no
 * top-k, or bias and penalties may raise some).  Changes with what is accepted. */
uint32_t atsi_sampler_top(const struct atsi_sampler *s);
/* The next token from the n largest logits, n at least atsi_sampler_top() of now, and their ids:
 * what atsi_sampler_next() says of all, with the same draw.  May change `logits`.  ATSI_ENOTSUP:
 * they do not tell (infinite ones among them); nothing has changed, ask with all. */
int32_t atsi_sampler_next_of(struct atsi_sampler *s, const int32_t *ids, float *logits, uint32_t n);
/* Tells which token was taken (prompt tokens too): penalties look back at these. */
void atsi_sampler_accept(struct atsi_sampler *s, int32_t id);

#endif
