/* SPDX-License-Identifier: Apache-2.0
 * What `atsinfer profile` measures, and how it is written. */
#ifndef ATSI_CLI_PROFILE_H
#define ATSI_CLI_PROFILE_H

#include "cli/kernels_op.h"

/* Weight formats that a machine profile gives a rate of prompts for. */
enum { PROFILE_QUANT = 0, PROFILE_FLOAT, PROFILE_MXFP4, PROFILE_GROUPS };

/* A figure with its spread over n samples; n = 0: not measured. */
struct profile_figure {
    double value, low, high;
    uint32_t n;
};

/* A weight type of the model: its share of the bytes that a token reads, and its products. */
struct profile_type {
    uint32_t type;
    double share;
    struct profile_figure gbs, gflops;
};

#define PROFILE_MAX_TYPES 8

/* GB/s.  alone: the CPU with all workers; beside: with one worker less, which the copy has. */
struct profile_dram {
    double cpu_alone, cpu_beside, copy_alone, cpu_together, copy_together;
};

struct profile {
    struct atsi_runtime *rt;
    struct kernels_backend backend;
    char backend_name[64], chosen[160], model[160], name[96];
    uint32_t n_threads;
    uint64_t bytes;   /* of memory that a measurement of bandwidth walks over */
    uint32_t load_s;  /* of load before the sustained bandwidth is taken */
    uint32_t n_types; /* of the model */
    struct profile_type types[PROFILE_MAX_TYPES];
    struct profile_figure gbs, sustained, gflops[PROFILE_GROUPS], op_us;
    uint32_t group_type[PROFILE_GROUPS]; /* type that stood for a group the model has none of */
    struct profile_dram dram;
};

/* ---- profile_cpu.c: the kernels.  Exit codes; progress on stderr. */
uint32_t profile_group(uint32_t type);
int profile_types(struct profile *p); /* p->types must be chosen */
int profile_sustained(struct profile *p);
int profile_small(struct profile *p);
/* Weights of a type over p->bytes, for a product with one row. */
int profile_gemv_open(const struct profile *p, uint32_t type, struct kernels_product *out);

/* ---- profile_dram.c: the CPU and a copy, alone and together */
int profile_dram(struct profile *p);

/* ---- profile_costs.c: the table of a model's operations.  Exit codes; progress on stderr. */
struct profile_bar {
    bool terminal;
    uint32_t shown; /* tenths that were said where no terminal shows a line that changes */
};
/* Progress of a measurement on stderr, with a struct profile_bar. */
void profile_show_progress(void *bar, uint32_t done, uint32_t total, const char *what);
struct atsi_profile;
struct profile_costs_params {
    const char *model; /* file */
    bool force, show;  /* measure in any case; only what is kept */
    bool quiet;        /* nothing is said of what is up to date */
    uint32_t chunk;    /* most tokens of a round; 0: by the settings */
    uint64_t room_bytes;
};
/* For simulate and plan on this machine: measures with progress what is not yet. */
int profile_costs_ready(const char *model, uint32_t chunk);
/* [owned by caller: atsi_profile_close] */
int profile_costs_open(struct atsi_runtime *rt, const struct profile_costs_params *p,
                       struct atsi_profile **out);
int profile_costs_print(const struct atsi_profile *p, bool json);

/* ---- profile_out.c */
/* Lines of another profile for all that is not measured here; NULL for none.  Fails when it lacks
 * what simulate needs. */
struct profile_lines {
    struct {
        char *key, *value;
    } line[64];
    uint32_t n;
};
int profile_lines_read(const char *path, struct profile_lines *out);
void profile_lines_free(struct profile_lines *l);
/* The profile as ini or JSON.  rest: of the accelerator, NULL: left to be filled in.  [owned by
 * caller: free()]  NULL: out of memory. */
char *profile_ini(const struct profile *p, const struct profile_lines *rest, const char *from);
char *profile_json(const struct profile *p, const struct profile_lines *rest, const char *from);

#endif
