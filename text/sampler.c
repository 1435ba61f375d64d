/* SPDX-License-Identifier: Apache-2.0
 *
 * Choosing the next token: logit bias, penalties, filters, a draw.
 *
 * Filters never sort a whole vocabulary: top-k keeps a heap of k while it reads the logits once,
 * the others order by a heap from which only the kept candidates are taken.  Whoever knows the
 * largest logits alone (an accelerator picked them) gets the same token: candidates of top-k are in
 * one order wherever they come from.  Ties go to the lower
 * id everywhere.  Sums are doubles over candidates in a fixed order, and exp and log are our own
 * (rng.h), so that a seed gives the same tokens on every machine.
 */
#include "text/sampler.h"

#include <math.h>
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "text/rng.h"

#define MAX_LAST_N (1 << 24)
#define NONE UINT32_MAX

struct candidate {
    double key;    /* order in which a filter takes candidates, highest first */
    double weight; /* exp of the logit minus the largest one */
    float logit;
    int32_t id;
};

struct atsi_sampler {
    struct atsi_sampler_params p;
    struct atsi_logit_bias *bias; /* a copy of p.bias, n_bias entries */
    uint32_t n_vocab;
    struct atsi_rng rng;
    struct candidate *cand; /* n_vocab entries */
    size_t n;               /* in use */
    uint64_t *keys;         /* top_k entries */
    float *row;             /* n_vocab entries of -inf, for adjust_list(); NULL: nothing adjusts */
    /* Penalties: how often each token occurs in the window, and which ones do. */
    uint32_t *count, *place; /* place: index in `seen`, NONE */
    uint32_t *seen, n_seen;
    int32_t *ring; /* the last penalty_last_n tokens, when that is positive */
    size_t n_ring, ring_at;
};

void atsi_sampler_defaults(struct atsi_sampler_params *p)
{
    *p = (struct atsi_sampler_params){.temp = 0.8f,
                                      .top_k = 40,
                                      .top_p = 0.95f,
                                      .min_p = 0.05f,
                                      .typical_p = 1.0f,
                                      .penalty_repeat = 1.0f,
                                      .penalty_last_n = 64};
}

/* ---------------------------------------------------------------- opening */
static int check_params(const struct atsi_sampler_params *p, uint32_t n_vocab, struct atsi_err *err)
{
    const struct {
        const char *name;
        double value, min, max;
    } ranges[] = {
        {"temperature", p->temp, -INFINITY, 1e6},
        {"top_p", p->top_p, 0, 1},
        {"min_p", p->min_p, 0, 1},
        {"typical_p", p->typical_p, 0, 1},
        {"repetition penalty", p->penalty_repeat, 1e-6, 1e6},
        {"presence penalty", p->penalty_presence, -1e6, 1e6},
        {"frequency penalty", p->penalty_freq, -1e6, 1e6},
        {"penalty_last_n", p->penalty_last_n, -1, MAX_LAST_N},
        {"vocabulary size", n_vocab, 1, INT32_MAX},
    };
    for (size_t i = 0; i < sizeof ranges / sizeof ranges[0]; i++)
        if (!(ranges[i].value >= ranges[i].min && ranges[i].value <= ranges[i].max))
            return atsi_fail(err, ATSI_EINVAL, "sampler: %s is %g, expected %g..%g", ranges[i].name,
                             ranges[i].value, ranges[i].min, ranges[i].max);
    for (size_t i = 0; i < p->n_bias; i++) {
        if (p->bias[i].id < 0 || (uint32_t)p->bias[i].id >= n_vocab)
            return atsi_fail(err, ATSI_EINVAL, "sampler: logit bias of token %d, there are %u",
                             p->bias[i].id, n_vocab);
        if (isnan(p->bias[i].bias) || p->bias[i].bias == INFINITY)
            return atsi_fail(err, ATSI_EINVAL,
                             "sampler: logit bias of token %d is %g, expected a number or -inf",
                             p->bias[i].id, (double)p->bias[i].bias);
    }
    return ATSI_OK;
}

static bool uses_penalties(const struct atsi_sampler_params *p)
{
    return p->penalty_last_n != 0 &&
           (p->penalty_repeat != 1.0f || p->penalty_presence != 0.0f || p->penalty_freq != 0.0f);
}

/* For lists of the largest logits: where bias and penalties find what they change. */
static bool alloc_row(struct atsi_sampler *s)
{
    if (s->p.n_bias == 0 && !uses_penalties(&s->p))
        return true;
    s->row = malloc(s->n_vocab * sizeof *s->row);
    for (uint32_t i = 0; s->row != NULL && i < s->n_vocab; i++)
        s->row[i] = -INFINITY;
    return s->row != NULL;
}

static bool alloc_parts(struct atsi_sampler *s)
{
    size_t n = s->n_vocab;
    s->bias = calloc(s->p.n_bias + 1, sizeof *s->bias);
    if (s->bias != NULL && s->p.n_bias > 0)
        memcpy(s->bias, s->p.bias, s->p.n_bias * sizeof *s->bias);
    s->p.bias = NULL; /* the caller's may go away */
    s->cand = calloc(n, sizeof *s->cand);
    s->keys = calloc(s->p.top_k < n ? s->p.top_k + 1 : 1, sizeof *s->keys);
    if (s->bias == NULL || s->cand == NULL || s->keys == NULL || !alloc_row(s))
        return false;
    if (!uses_penalties(&s->p))
        return true;
    s->count = calloc(n, sizeof *s->count);
    s->place = malloc(n * sizeof *s->place);
    s->seen = malloc(n * sizeof *s->seen);
    if (s->p.penalty_last_n > 0)
        s->ring = malloc((size_t)s->p.penalty_last_n * sizeof *s->ring);
    if (s->place != NULL)
        memset(s->place, 0xFF, n * sizeof *s->place); /* every entry NONE */
    return s->count != NULL && s->place != NULL && s->seen != NULL &&
           (s->p.penalty_last_n < 0 || s->ring != NULL);
}

int atsi_sampler_open(const struct atsi_sampler_params *p, uint32_t n_vocab,
                      struct atsi_sampler **out, struct atsi_err *err)
{
    struct atsi_sampler *s;
    int rc = check_params(p, n_vocab, err);
    *out = NULL;
    if (rc != ATSI_OK)
        return rc;
    s = calloc(1, sizeof *s);
    if (s != NULL) {
        s->p = *p;
        s->n_vocab = n_vocab;
        atsi_rng_seed(&s->rng, p->seed);
    }
    if (s == NULL || !alloc_parts(s)) {
        atsi_sampler_close(s);
        return atsi_fail(err, ATSI_ENOMEM, "sampler: out of memory for %u tokens", n_vocab);
    }
    *out = s;
    return ATSI_OK;
}

void atsi_sampler_close(struct atsi_sampler *s)
{
    if (s == NULL)
        return;
    free(s->bias);
    free(s->cand);
    free(s->keys);
    free(s->row);
    free(s->count);
    free(s->place);
    free(s->seen);
    free(s->ring);
    free(s);
}

/* ---------------------------------------------------------------- penalties */
static void count_up(struct atsi_sampler *s, int32_t id)
{
    if (s->count[id]++ == 0) {
        s->place[id] = s->n_seen;
        s->seen[s->n_seen++] = (uint32_t)id;
    }
}

static void count_down(struct atsi_sampler *s, int32_t id)
{
    if (--s->count[id] == 0) { /* the last one takes the place that becomes free */
        uint32_t last = s->seen[--s->n_seen];
        s->seen[s->place[id]] = last;
        s->place[last] = s->place[id];
        s->place[id] = NONE;
    }
}

void atsi_sampler_accept(struct atsi_sampler *s, int32_t id)
{
    size_t last_n = (size_t)s->p.penalty_last_n;
    if (s->count == NULL || id < 0 || (uint32_t)id >= s->n_vocab)
        return;
    if (s->ring != NULL) {
        if (s->n_ring == last_n)
            count_down(s, s->ring[s->ring_at]);
        else
            s->n_ring++;
        s->ring[s->ring_at] = id;
        s->ring_at = (s->ring_at + 1) % last_n;
    }
    count_up(s, id);
}

static void adjust(struct atsi_sampler *s, float *logits)
{
    for (size_t i = 0; i < s->p.n_bias; i++)
        logits[s->bias[i].id] += s->bias[i].bias;
    for (uint32_t i = 0; i < s->n_seen; i++) {
        uint32_t id = s->seen[i];
        float x = logits[id];
        x = x > 0.0f ? x / s->p.penalty_repeat : x * s->p.penalty_repeat;
        logits[id] = x - (float)s->count[id] * s->p.penalty_freq - s->p.penalty_presence;
    }
}

/* ---------------------------------------------------------------- candidates */
/* True when a is taken before b. */
static bool before(const struct candidate *a, const struct candidate *b)
{
    return a->key > b->key || (a->key == b->key && a->id < b->id);
}

/* Restores the heap below i, the candidate taken first on top. */
static void sift_down(struct candidate *h, size_t n, size_t i)
{
    struct candidate x = h[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        if (child + 1 < n && before(&h[child + 1], &h[child]))
            child++;
        if (!before(&h[child], &x))
            break;
        h[i] = h[child];
    }
    h[i] = x;
}

static void make_heap(struct candidate *h, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_down(h, n, i);
}

/* All tokens with a finite logit. */
static void take_all(struct atsi_sampler *s, const float *logits)
{
    s->n = 0;
    for (uint32_t i = 0; i < s->n_vocab; i++)
        if (isfinite(logits[i]))
            s->cand[s->n++] =
                (struct candidate){.key = logits[i], .logit = logits[i], .id = (int32_t)i};
}

/* Logits of tokens 0, 1, 2 ..., or, with ids, of these. */
struct logits {
    const float *x;
    const int32_t *ids; /* or NULL */
    size_t n;
};

static int32_t id_of(const struct logits *l, size_t i)
{
    return l->ids != NULL ? l->ids[i] : (int32_t)i;
}

#define RUN 16u

typedef float lanes __attribute__((vector_size(16)));
typedef int32_t masks __attribute__((vector_size(16)));

/* Whether one of RUN logits exceeds `low`. */
static bool any_above(const float *x, float low)
{
    const lanes limit = {low, low, low, low};
    lanes v[RUN / 4];
    masks any = {0};
    int64_t halves[2];
    memcpy(v, x, sizeof v);
    for (size_t j = 0; j < RUN / 4; j++)
        any |= v[j] > limit;
    memcpy(halves, &any, sizeof halves);
    return (halves[0] | halves[1]) != 0;
}

/* Passes over runs of logits, from i on, that do not exceed `low`. */
static size_t skip_low(const struct logits *l, size_t i, float low)
{
    while (i + RUN <= l->n && !any_above(l->x + i, low))
        i += RUN;
    return i;
}

/* A finite logit and its id as one number: larger for a larger logit, then for a lower id.  Zeros
 * are equal. */
static uint64_t key_of(float x, int32_t id)
{
    uint32_t bits;
    x = x == 0.0f ? 0.0f : x;
    memcpy(&bits, &x, sizeof bits);
    bits = bits >> 31 != 0 ? ~bits : bits | 0x80000000u;
    return (uint64_t)bits << 32 | (uint32_t)~id;
}

static float logit_of(uint64_t key)
{
    uint32_t bits = (uint32_t)(key >> 32);
    float x;
    bits = bits >> 31 != 0 ? bits & 0x7fffffffu : ~bits;
    memcpy(&x, &bits, sizeof x);
    return x;
}

/* Restores the heap below i, the smallest key on top.  Which child is smaller is anybody's guess,
 * so there is no branch about it; h[n] may be read. */
static void sift_key(uint64_t *h, size_t n, size_t i)
{
    uint64_t x = h[i];
    for (size_t child; (child = 2 * i + 1) < n; i = child) {
        child += (size_t)(child + 1 < n) & (size_t)(h[child + 1] < h[child]);
        if (h[child] >= x)
            break;
        h[i] = h[child];
    }
    h[i] = x;
}

static void heap_keys(uint64_t *h, size_t n)
{
    for (size_t i = n / 2; i-- > 0;)
        sift_key(h, n, i);
}

/* Adds a key to the k largest; returns how many there are. */
static size_t offer(uint64_t *h, size_t n, size_t k, uint64_t key)
{
    if (n < k) {
        h[n++] = key;
        if (n == k)
            heap_keys(h, k);
    } else if (key > h[0]) {
        h[0] = key;
        sift_key(h, k, 0);
    }
    return n;
}

/* A heap to largest first. */
static void sort_keys(uint64_t *h, size_t n)
{
    while (n > 1) {
        uint64_t smallest = h[0];
        h[0] = h[--n];
        h[n] = smallest;
        sift_key(h, n, 0);
    }
}

/* The k tokens of the largest finite logits, best first: whoever has these alone gets the same
 * list, and with it the same sums. */
static void take_top_k(struct atsi_sampler *s, const struct logits *l, size_t k)
{
    uint64_t *h = s->keys;
    size_t n = 0;
    for (size_t i = 0, end; i < l->n;) {
        float low = n == k ? logit_of(h[0]) : -INFINITY;
        if (n == k && l->ids == NULL) /* what is equal comes later: its id is higher */
            i = skip_low(l, i, low);
        end = i + RUN < l->n ? i + RUN : l->n;
        for (; i < end; i++)
            if (l->x[i] >= low && isfinite(l->x[i]))
                n = offer(h, n, k, key_of(l->x[i], id_of(l, i)));
    }
    if (n < k)
        heap_keys(h, n);
    sort_keys(h, n);
    for (size_t j = 0; j < n; j++) {
        float x = logit_of(h[j]);
        s->cand[j] = (struct candidate){.key = x, .logit = x, .id = (int32_t) ~(uint32_t)h[j]};
    }
    s->n = n;
}

/* Weights of the candidates at a temperature, and their sum. */
static double weigh(struct atsi_sampler *s, double temp)
{
    double max = -INFINITY, sum = 0.0;
    for (size_t i = 0; i < s->n; i++)
        max = s->cand[i].logit > max ? s->cand[i].logit : max;
    for (size_t i = 0; i < s->n; i++) {
        s->cand[i].weight = atsi_exact_exp(((double)s->cand[i].logit - max) / temp);
        sum += s->cand[i].weight;
    }
    return sum;
}

/* Keeps the candidates of the highest keys whose weights together reach `share` of the sum, one at
 * least.  They end up at the front, best first. */
static void keep_share(struct atsi_sampler *s, double sum, double share)
{
    size_t n_heap = s->n, kept = 0;
    double reached = 0.0;
    make_heap(s->cand, n_heap);
    while (n_heap > 0) { /* taken ones go to the end of the array, which the heap leaves free */
        struct candidate best = s->cand[0];
        s->cand[0] = s->cand[--n_heap];
        if (n_heap > 0)
            sift_down(s->cand, n_heap, 0);
        s->cand[n_heap] = best;
        kept++;
        reached += best.weight;
        if (reached >= share * sum)
            break;
    }
    for (size_t i = 0; i < kept / 2; i++) { /* the end holds them worst first: turn round */
        struct candidate tmp = s->cand[s->n - kept + i];
        s->cand[s->n - kept + i] = s->cand[s->n - 1 - i];
        s->cand[s->n - 1 - i] = tmp;
    }
    memmove(s->cand, s->cand + (s->n - kept), kept * sizeof *s->cand);
    s->n = kept;
}

/* Locally typical sampling (Meister et al. 2022): by closeness of -log p to the entropy. */
static void filter_typical(struct atsi_sampler *s)
{
    double sum = weigh(s, 1.0), log_sum = atsi_exact_log(sum), entropy = 0.0, max = -INFINITY;
    for (size_t i = 0; i < s->n; i++)
        max = s->cand[i].logit > max ? s->cand[i].logit : max;
    for (size_t i = 0; i < s->n; i++) {
        struct candidate *c = &s->cand[i];
        c->key = log_sum - ((double)c->logit - max); /* -log p */
        entropy += c->weight / sum * c->key;
    }
    for (size_t i = 0; i < s->n; i++)
        s->cand[i].key = -fabs(s->cand[i].key - entropy);
    keep_share(s, sum, s->p.typical_p);
}

static void filter_top_p(struct atsi_sampler *s)
{
    double sum = weigh(s, 1.0);
    for (size_t i = 0; i < s->n; i++)
        s->cand[i].key = s->cand[i].logit;
    keep_share(s, sum, s->p.top_p);
}

/* Keeps what is at least min_p as likely as the likeliest, whose weight is 1. */
static void filter_min_p(struct atsi_sampler *s)
{
    size_t kept = 0;
    (void)weigh(s, 1.0);
    for (size_t i = 0; i < s->n; i++)
        if (s->cand[i].weight >= (double)s->p.min_p)
            s->cand[kept++] = s->cand[i];
    s->n = kept;
}

/* ---------------------------------------------------------------- choosing */
static int32_t greedy(const struct logits *l)
{
    int32_t best = ATSI_EFAIL;
    float max = -INFINITY;
    for (size_t i = 0, end; i < l->n;) {
        if (l->ids == NULL)
            i = skip_low(l, i, max);
        end = i + RUN < l->n ? i + RUN : l->n;
        for (; i < end; i++) {
            float x = l->x[i];
            if (isfinite(x) && (x > max || (x == max && id_of(l, i) < best))) {
                max = x;
                best = id_of(l, i);
            }
        }
    }
    return best;
}

static int32_t draw(struct atsi_sampler *s)
{
    double sum = weigh(s, s->p.temp), target = atsi_rng_unit(&s->rng) * sum, reached = 0.0;
    size_t last = 0;
    for (size_t i = 0; i < s->n; i++) {
        if (s->cand[i].weight > 0.0)
            last = i;
        reached += s->cand[i].weight;
        if (reached > target)
            break;
    }
    return s->cand[last].id; /* also when rounding kept `reached` from passing the target */
}

static bool is_greedy(const struct atsi_sampler *s)
{
    return s->p.temp <= 0.0f;
}

static bool has_top_k(const struct atsi_sampler *s)
{
    return s->p.top_k > 0 && s->p.top_k < s->n_vocab;
}

/* Of the candidates. */
static int32_t choose(struct atsi_sampler *s)
{
    if (s->n == 0)
        return ATSI_EFAIL;
    if (s->p.typical_p < 1.0f)
        filter_typical(s);
    if (s->p.top_p < 1.0f)
        filter_top_p(s);
    if (s->p.min_p > 0.0f)
        filter_min_p(s);
    return draw(s);
}

int32_t atsi_sampler_next(struct atsi_sampler *s, float *logits)
{
    struct logits all = {.x = logits, .n = s->n_vocab};
    adjust(s, logits);
    if (is_greedy(s))
        return greedy(&all);
    if (has_top_k(s))
        take_top_k(s, &all, s->p.top_k);
    else
        take_all(s, logits);
    return choose(s);
}

/* ---------------------------------------------------------------- from the largest alone */
/* Whether bias and penalties never raise a logit. */
static bool only_lowers(const struct atsi_sampler *s)
{
    for (size_t i = 0; i < s->p.n_bias; i++)
        if (s->bias[i].bias > 0.0f)
            return false;
    return !uses_penalties(&s->p) || (s->p.penalty_repeat >= 1.0f &&
                                      s->p.penalty_presence >= 0.0f && s->p.penalty_freq >= 0.0f);
}

uint32_t atsi_sampler_top(const struct atsi_sampler *s)
{
    uint64_t n = is_greedy(s) ? 1 : s->p.top_k;
    if ((!is_greedy(s) && !has_top_k(s)) || !only_lowers(s))
        return 0;
    /* Each lowered one lets another in, at most. */
    n += (uint64_t)s->p.n_bias + s->n_seen;
    return n < s->n_vocab ? (uint32_t)n : 0;
}

/* Bias and penalties on a list: on a row that has -inf everywhere else, which stays so. */
static void adjust_list(struct atsi_sampler *s, const int32_t *ids, float *logits, uint32_t n)
{
    if (s->row == NULL)
        return;
    for (uint32_t i = 0; i < n; i++)
        s->row[ids[i]] = logits[i];
    adjust(s, s->row);
    for (uint32_t i = 0; i < n; i++) {
        logits[i] = s->row[ids[i]];
        s->row[ids[i]] = -INFINITY;
    }
}

int32_t atsi_sampler_next_of(struct atsi_sampler *s, const int32_t *ids, float *logits, uint32_t n)
{
    struct logits list = {.x = logits, .ids = ids, .n = n};
    uint32_t need = atsi_sampler_top(s);
    if (need == 0 || n < need)
        return ATSI_ENOTSUP;
    for (uint32_t i = 0; i < n; i++)
        if (ids[i] < 0 || (uint32_t)ids[i] >= s->n_vocab || logits[i] == INFINITY)
            return ATSI_ENOTSUP; /* infinite ones are not chosen: others would be, beyond the list
                                  */
    adjust_list(s, ids, logits, n);
    if (is_greedy(s))
        return greedy(&list);
    take_top_k(s, &list, s->p.top_k);
    return choose(s);
}
