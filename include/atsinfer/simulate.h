/* SPDX-License-Identifier: Apache-2.0
 *
 * Simulated requests: the planner, the executor, the recorder and the policies as they are, on
 * devices that advance a virtual clock (plugin "sim").  Every figure is modelled, none is measured.
 * docs/scheduling.md describes machine profiles, shape files and the model of time.
 */
#ifndef ATSINFER_SIMULATE_H
#define ATSINFER_SIMULATE_H

#include "atsinfer/atsinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* How a request is run; what systems without asynchronous coordination or dynamic transfer do. */
enum atsi_sim_mode {
    ATSI_SIM_FULL = 0, /* asynchronous, weights promoted in both phases */
    ATSI_SIM_STATIC,   /* asynchronous; decode promotes nothing and needs no slots */
    ATSI_SIM_SYNC      /* switches and copies block; decode promotes nothing and needs no slots */
};

/* What policies know of the slowdowns. */
enum atsi_sim_know {
    ATSI_SIM_MEASURED = 0, /* what the recorder finds, round by round */
    ATSI_SIM_TOLD,         /* the costs they start from have them in */
    ATSI_SIM_NEVER         /* nothing: the first plan stays */
};

/* Where something happened in a round, for a trace. */
enum atsi_sim_lane {
    ATSI_SIM_LANE_ROUND = 0, /* the round as a whole */
    ATSI_SIM_LANE_CPU,
    ATSI_SIM_LANE_STREAM, /* compute stream of the accelerator, activation copies too */
    ATSI_SIM_LANE_ENGINE, /* copy engine: weights */
    ATSI_SIM_N_LANES
};

enum atsi_sim_event {
    ATSI_SIM_ROUND = 0,
    ATSI_SIM_ITEM, /* an item ran */
    ATSI_SIM_COPY, /* activations that item needs */
    ATSI_SIM_MOVE  /* the weight of that item into a temporary slot */
};

/* One stretch of time.  A weight that an item of the round used was brought by the ATSI_SIM_MOVE
 * of the same phase and item; it may have begun before the round. */
struct atsi_sim_span {
    uint32_t struct_size;
    uint32_t event, lane, phase; /* enum atsi_sim_event, atsi_sim_lane, atsi_phase (policy.h) */
    uint32_t item;
    int32_t layer;             /* -1: none */
    int32_t slot;              /* MOVE: of the plan; -1: none */
    uint32_t tokens;           /* of the round */
    uint64_t start_ns, end_ns; /* on the virtual clock, which starts with the simulation */
    uint64_t bytes;            /* read, copied or moved; ROUND: resident on the accelerator */
    const char *name;          /* of the item's weight; ROUND: of the phase.  [for the call] */
};

/* This machine, as measured for the model (atsinfer/profile.h); measured when it was not yet. */
#define ATSI_MACHINE_HERE "here"

/* As a number of tokens per prefill round: the size with which a request is shortest is chosen, and
 * said. */
#define ATSI_CHUNK_AUTO 0xffffffffu

struct atsi_sim_params {
    uint32_t struct_size;
    uint32_t mode;       /* enum atsi_sim_mode */
    const char *machine; /* profile (ini), table of measured costs, or ATSI_MACHINE_HERE */
    const char *model;   /* shape file (.ini), or a model file, of which only the head is read */
    uint32_t chunk;      /* tokens of a prefill round; 0: the machine's; or ATSI_CHUNK_AUTO */
    uint32_t ctx;        /* positions before the decode rounds */
    uint32_t rounds;     /* decode rounds; the last one counts */
    uint32_t prompt, generated; /* of the request that is summed up */
    uint64_t vram_bytes;        /* 0: the machine's, less its reserve */
    uint32_t max_slots;
    uint32_t sustained;                   /* 1: the CPU's bandwidth when it is warm */
    uint32_t contention;                  /* 1: transfers and the CPU share the DRAM */
    double load_cpu, load_gpu, load_pcie; /* slowdowns of the whole run, 1: none */
    uint32_t know;                        /* enum atsi_sim_know */
    /* Called with refusals of policies; may be NULL. */
    void (*say)(void *ctx, const char *text);
    void *say_ctx;
    /* Called with everything that happened in the last prefill and the last decode round, once they
     * are over: the round first, then its items, copies and moves in the plan's order.  May be
     * NULL. */
    void (*trace)(void *ctx, const struct atsi_sim_span *span);
    void *trace_ctx;
    /* 1: no round follows the last one, so that no weight is on its way for it.  0: as in the
     * middle of a long answer. */
    uint32_t last;
    uint32_t reserved;
};

struct atsi_sim_phase {
    uint64_t ns;                   /* of the last round, host time between rounds included */
    uint64_t predicted_ns;         /* by the policy; 0: it made none */
    uint64_t exposed_ns;           /* the accelerator waited for weights */
    uint64_t busy_ns[3];           /* host, compute stream, copy engine */
    uint64_t schedule_ns, plan_ns; /* wall clock: the policy's longest answer; planning */
    uint32_t n_moves;              /* weights promoted in the round */
    uint32_t tokens;               /* of the round */
};

struct atsi_sim_result {
    uint32_t struct_size;
    uint32_t n_items;
    char model[96], machine[96];
    struct atsi_sim_phase prefill, decode;
    uint64_t ttft_ns;    /* of the prompt: its chunks one after the other */
    uint64_t request_ns; /* prompt and generated tokens */
    uint64_t
        bound_ns; /* no plan of whole weights on this placement decodes faster; 0: not computed */
    uint64_t resident_bytes, budget_bytes; /* on the accelerator, in decode */
    uint32_t illegal, failed, late;        /* answers refused */
    uint32_t n_made, n_kept;               /* plans */
    /* Over the link in the last rounds, prefill and decode: weights, activations, results. */
    uint64_t link_bytes[2][3];
};

/* Runs policy.name (policy.place, policy.schedule, policy.fallback) of the configuration.
 * ATSI_ENOENT: a policy or the plugin "sim" is not there; ATSI_ECONF: a bad profile or shape. */
ATSI_EXPORT int atsi_simulate(struct atsi_runtime *rt, const struct atsi_sim_params *p,
                              struct atsi_sim_result *out, struct atsi_err *err);

/* ---------------------------------------------------------------- expert caches */
struct atsi_routing; /* routing.h */

/* Who comes into an expert cache. */
enum atsi_cache_way {
    ATSI_CACHE_POLICY = 0,  /* as the configured placement policy chooses */
    ATSI_CACHE_LRU,         /* every miss, for what was not used longest */
    ATSI_CACHE_LFU,         /* what was used more often, over all tokens */
    ATSI_CACHE_CLAIRVOYANT, /* who knows all that follows, and copies for nothing: the bound of
                             * caches that take in only what they have just missed */
    ATSI_CACHE_NONE         /* no cache: whole stacks are placed and promoted */
};

struct atsi_cache_params {
    uint32_t struct_size;
    uint32_t way;                       /* enum atsi_cache_way */
    const struct atsi_routing *routing; /* its tokens are decode rounds, one after the other */
    double half_life;       /* of the scores that policies see, in tokens; 0: nothing fades */
    uint32_t copy_permille; /* of a round's time that transfers of experts may take */
    uint32_t reserved;
    uint64_t n_tokens; /* of the trace, at most; 0: all */
};

struct atsi_cache_result {
    uint32_t struct_size;
    uint32_t n_layers;           /* that have a cache */
    uint64_t n_slots, n_experts; /* over all layers with experts */
    uint64_t n_tokens, hits, misses, swaps;
    uint64_t refused;                      /* answers of the policy */
    uint64_t tpot_ns;                      /* mean over the tokens but the first */
    uint64_t resident_bytes, budget_bytes; /* on the accelerator, slots of caches included */
};

/* Decodes a routing trace on the simulated devices.  p->rounds is not used; p->trace neither.
 * ATSI_EINVAL: the trace is of another model. */
ATSI_EXPORT int atsi_simulate_routing(struct atsi_runtime *rt, const struct atsi_sim_params *p,
                                      const struct atsi_cache_params *c,
                                      struct atsi_cache_result *out, struct atsi_err *err);

/* Hits alone, without a machine: caches of n_slots in every layer; what comes in is there for the
 * next token, copies are not limited. */
struct atsi_replay_params {
    uint32_t struct_size;
    uint32_t way; /* enum atsi_cache_way; ATSI_CACHE_POLICY: frequency that fades */
    const struct atsi_routing *routing;
    double half_life; /* tokens */
    double copy_hits; /* so many hits are worth one copy */
    uint32_t n_slots;
    uint32_t reserved;
};

struct atsi_replay_result {
    uint32_t struct_size;
    uint32_t reserved;
    uint64_t hits, misses, swaps;
};

ATSI_EXPORT int atsi_routing_replay(const struct atsi_replay_params *p,
                                    struct atsi_replay_result *out, struct atsi_err *err);

#ifdef __cplusplus
}
#endif
#endif
