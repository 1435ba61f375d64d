/* SPDX-License-Identifier: Apache-2.0
 * The table of `atsinfer kernels`: rows, output formats, saved tables. */
#ifndef ATSI_CLI_KERNELS_TABLE_H
#define ATSI_CLI_KERNELS_TABLE_H

#include "cli/cli.h"

/* How fast one kernel is.  What identifies a row comes first. */
struct kernels_row {
    char backend[32], op[24], type[12], layout[8]; /* layout: "rows", "panels"; "": no weight */
    char shape[48];                                /* "4096x4096, 512 tokens" */
    char memory[12];                               /* "cache", "streaming" */
    char unit[8];                                  /* "GB/s", "GMAC/s" */
    double speed;                                  /* by the median time */
    double spread;                                 /* (slowest - fastest quartile) / median */
    double of_limit;                               /* share; 0: none is known */
    double of_ref;                                 /* times the speed of cpu_ref; 0: not measured */
    double ns;                                     /* median */
    double was;                                    /* speed in the table compared with; 0: none */
    bool slower;                                   /* than `was`, beyond both spreads */
};

struct kernels_table {
    struct kernels_row *rows;
    uint32_t n, room;
    char cpu[128];
    uint32_t n_threads;
    double read_gbps, int8_gmacs, fma_gmacs; /* the limits; 0: not known */
    const char *int8_name, *fma_name;
    bool compared;
};

/* False: out of memory. */
bool kernels_table_add(struct kernels_table *t, const struct kernels_row *row);
void kernels_table_free(struct kernels_table *t);

/* "md", "csv", "json" */
bool kernels_table_format_known(const char *format);
/* md and csv rows are printed as they come, between both. */
void kernels_table_begin(const struct kernels_table *t, const char *format);
void kernels_table_print(const struct kernels_table *t, const char *format,
                         const struct kernels_row *row);
/* An exit code. */
int kernels_table_end(const struct kernels_table *t, const char *format);

/* kernels_json.c.  An exit code. */
int kernels_table_print_json(const struct kernels_table *t);

/* kernels_saved.c: the JSON form as a file. */
int kernels_table_save(const struct kernels_table *t, const char *path);
/* Reads a saved table.  An exit code; prints what is wrong with it. */
int kernels_table_load(const char *path, struct kernels_table *out);
/* Sets was and slower of `row` from `old`. */
void kernels_table_compare(const struct kernels_table *old, struct kernels_row *row);

struct json_t;
/* The whole table; NULL: out of memory.  [owned by caller: json_decref] */
struct json_t *kernels_table_json(const struct kernels_table *t);

#endif
