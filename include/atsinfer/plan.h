/* SPDX-License-Identifier: Apache-2.0
 *
 * Plans as reports: what the configured policy would keep on the accelerator, what it would stream
 * in which phase and why, what that costs, and what would change if something else were so.  The
 * request runs on the simulated devices (plugin "sim") of a machine profile; no figure is measured.
 * Plans can be saved and re-used.  docs/plan.md describes the command that prints them.
 */
#ifndef ATSINFER_PLAN_H
#define ATSINFER_PLAN_H

#include "atsinfer/atsinfer.h"

#ifdef __cplusplus
extern "C" {
#endif

/* Items are named by shell patterns ("blk.*.ffn_up*"); the first rule that matches counts. */
struct atsi_plan_pin {
    const char *pattern;
    int32_t device; /* 0: the host, 1: the accelerator */
};

struct atsi_plan_params {
    uint32_t struct_size;
    /* Tokens of a prefill round, at most the prompt; ATSI_CHUNK_AUTO (simulate.h): chosen; 0: the
     * machine's, or with measured costs as a session does. */
    uint32_t chunk;
    const char *machine;        /* as of atsi_sim_params */
    const char *model;          /* shape file (.ini), or a model file, of which the head is read */
    const char *use;            /* a saved plan instead of the policy's answers; NULL: ask */
    const char *policy;         /* what the policy is called in reports and saved plans; NULL: its
                                   name. A saved plan of another policy is refused unless NULL */
    uint32_t prompt, generated; /* tokens of the request */
    uint32_t ctx;               /* positions before the decode rounds */
    uint32_t ctx_max;           /* positions that caches are sized for; 0: the machine's */
    uint64_t vram_bytes;        /* 0: the machine's, less its reserve */
    uint64_t ram_bytes;         /* for weights and caches on the host; 0: not limited */
    uint32_t max_slots;
    uint32_t sustained;  /* 1: the CPU's bandwidth when it is warm */
    uint32_t contention; /* 1: transfers and the CPU share the DRAM */
    uint32_t n_pins;
    const struct atsi_plan_pin *pins; /* [n_pins] */
    /* Called with refusals of policies; may be NULL. */
    void (*say)(void *ctx, const char *text);
    void *say_ctx;
};

/* What most of a round waits for. */
enum atsi_plan_limit {
    ATSI_PLAN_NOTHING = 0,
    ATSI_PLAN_CPU_MEMORY, /* the CPU reads as fast as it can */
    ATSI_PLAN_CPU_ARITHMETIC,
    ATSI_PLAN_GPU_MEMORY,
    ATSI_PLAN_GPU_ARITHMETIC,
    ATSI_PLAN_LINK, /* weight transfers */
    ATSI_PLAN_DRAM, /* CPU and transfers together take all of the host's memory bandwidth */
    ATSI_PLAN_N_LIMITS
};

/* A round of one phase in steady state. */
struct atsi_plan_phase {
    uint64_t ns;           /* host time between rounds included in decode */
    uint64_t predicted_ns; /* by the policy; 0: it made no prediction */
    uint64_t bound_ns;     /* no plan of whole weights on this placement is faster; 0: not known */
    uint64_t busy_ns[3];   /* host, compute stream, copy engine */
    uint64_t exposed_ns;   /* the accelerator waited for weights */
    uint64_t dram_bytes;   /* read by the CPU and by transfers */
    uint64_t moved_bytes;  /* of these: by transfers */
    uint64_t slot_bytes;   /* of one temporary slot */
    uint32_t slots, n_moves;
    uint32_t tokens, ctx;
    uint32_t limit;          /* enum atsi_plan_limit */
    uint32_t limit_permille; /* how much of the round that is in use */
};

/* What fits where, in bytes. */
struct atsi_plan_memory {
    uint64_t vram;               /* the budget */
    uint64_t weights, caches;    /* resident; KV caches and states count as caches */
    uint64_t slots;              /* temporary slots */
    uint64_t left;               /* of the budget */
    uint64_t host_weights;       /* on the host */
    uint64_t host_caches, ram;   /* ram: the limit, 0: none */
    uint64_t all_weights, cache; /* of the model */
    /* What cannot be elsewhere: items pinned to the accelerator, and two slots of the smallest
     * weight that can be streamed. */
    uint64_t pinned_weights, pinned_caches, least_slots;
    uint64_t missing_vram, missing_ram; /* when it does not fit: so much more is needed */
    uint64_t enough_vram;               /* a budget with which it would fit; 0: none would */
    uint64_t enough_ram;                /* likewise, a limit for the host */
    uint32_t fits_ctx;                  /* with caches for so many positions it would; 0: never */
    uint32_t ctx_max;                   /* positions that caches are sized for */
};

struct atsi_plan_summary {
    uint32_t struct_size;
    uint32_t n_items;
    char model[96], machine[96], policy[96];
    struct atsi_plan_phase prefill, decode;
    struct atsi_plan_memory memory;
    uint64_t ttft_ns;      /* of the prompt: its rounds one after the other */
    uint64_t tpot_ns;      /* per generated token */
    uint64_t machine_dram; /* bytes per second */
    uint32_t n_resident;   /* items on the accelerator */
    uint32_t vram_binds;   /* 1: not all items that would gain there have room */
    uint32_t refused;      /* answers of policies that were refused */
    uint32_t reused;       /* 1: from a saved plan */
    uint32_t prompt, generated;
    uint32_t measured; /* 1: with costs measured on this machine; rounds are simulated all the same
                        */
    uint32_t reserved;
};

enum atsi_plan_reason {
    ATSI_PLAN_PINNED = 0, /* a rule says so */
    ATSI_PLAN_GAINS,      /* on the accelerator: faster there */
    ATSI_PLAN_BESIDE,     /* on the accelerator: saves changes of sides */
    ATSI_PLAN_SLOWER,     /* on the host: no faster elsewhere */
    ATSI_PLAN_STREAMED,   /* on the host: promoted in some phase, which costs no memory */
    ATSI_PLAN_NO_ROOM,    /* on the host: larger than what is left of the budget */
    ATSI_PLAN_CHOSEN,     /* on the host: the policy left room */
    ATSI_PLAN_N_REASONS
};

/* Arrays of two: prefill, decode (enum atsi_phase). */
struct atsi_plan_item {
    uint32_t struct_size;
    uint32_t index;
    const char *name;
    uint32_t role;  /* enum atsi_role */
    int32_t layer;  /* -1: none */
    int32_t router; /* item it waits for, -1: none */
    uint32_t n_experts;
    int32_t pinned;            /* device, -1: free */
    uint32_t can_promote;      /* 1: its weight may be streamed at all */
    uint64_t bytes;            /* resident: weight of all experts, or cache or state */
    uint64_t touched[2];       /* bytes a round reads */
    double flops[2];           /* of a round */
    uint64_t cpu_ns[2];        /* run on the host */
    uint64_t gpu_ns[2];        /* run on the accelerator */
    uint64_t transfer_ns[2];   /* into a slot; 0: it cannot move in this phase */
    uint64_t to_gpu_ns[2];     /* its activations to the accelerator */
    uint64_t to_cpu_ns[2];     /* and to the host */
    uint32_t slow_cpu[2];      /* speed on the host while a weight moves, per mille */
    uint32_t slow_copy[2];     /* and of that transfer */
    double density[2];         /* us gained per MiB on the accelerator: per round */
    int32_t device;            /* where it lives: 0 host, 1 accelerator */
    uint32_t promoted[2];      /* 1: streamed in every round of the phase */
    int32_t slot[2], after[2]; /* of its transfer; after: earliest after this item, -1 */
    uint32_t reason;           /* enum atsi_plan_reason */
    uint32_t reserved;
};

/* A variation: one item pinned elsewhere, more memory, or both. */
struct atsi_plan_change {
    uint32_t struct_size;
    int32_t item; /* index, -1: none */
    int32_t device;
    uint32_t reserved;
    uint64_t more_vram;
};

struct atsi_plan_times {
    uint32_t struct_size;
    uint32_t n_resident;
    uint64_t ttft_ns, tpot_ns;
};

/* A plan, its summary and its items. */
struct atsi_plan_report;

/* rt must outlive the report.  ATSI_ENOFIT: needs exceed a budget; *out is then set too, with a
 * summary that has its memory alone and items without decisions.  ATSI_ECONF: a bad profile, shape
 * or saved plan, or a saved plan for something else (the message names what differs). */
ATSI_EXPORT int atsi_plan_make(struct atsi_runtime *rt, const struct atsi_plan_params *p,
                               struct atsi_plan_report **out, struct atsi_err *err);
ATSI_EXPORT void atsi_plan_free(struct atsi_plan_report *r); /* NULL is allowed */
/* [borrowed until atsi_plan_free] */
ATSI_EXPORT const struct atsi_plan_summary *atsi_plan_summary(const struct atsi_plan_report *r);
/* NULL: there is no such item.  [borrowed until atsi_plan_free] */
ATSI_EXPORT const struct atsi_plan_item *atsi_plan_item(const struct atsi_plan_report *r,
                                                        uint32_t index);
/* Asks the policy again under a change.  ATSI_ENOFIT: it does not fit. */
ATSI_EXPORT int atsi_plan_try(struct atsi_plan_report *r, const struct atsi_plan_change *change,
                              struct atsi_plan_times *out, struct atsi_err *err);
/* Replaces `path` as a whole.  The same plan gives the same bytes, a re-used one those it had. */
ATSI_EXPORT int atsi_plan_save(const struct atsi_plan_report *r, const char *path,
                               struct atsi_err *err);

#ifdef __cplusplus
}
#endif
#endif
