/* SPDX-License-Identifier: Apache-2.0
 * The rows as a table for people, and all their fields for programs: one list names them. */
#include "cli/bench_sweep_row.h"

#include "cli/cli.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum kind { TEXT, U32, U64, REAL };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define FIELD(kind, member)                                                                        \
    {                                                                                              \
#member, kind, offsetof(struct sweep_row, member)                                          \
    }

static const struct field fields[] = {
    FIELD(TEXT, model),         FIELD(TEXT, backend),      FIELD(TEXT, accel),
    FIELD(TEXT, vram),          FIELD(TEXT, policy),       FIELD(U32, n_prompt),
    FIELD(U32, n_gen),          FIELD(U32, repeats),       FIELD(REAL, prefill_ts),
    FIELD(REAL, decode_ts),     FIELD(REAL, open_s),       FIELD(U32, n_items),
    FIELD(U32, n_resident),     FIELD(U64, weights_there), FIELD(U64, slots_there),
    FIELD(U64, caches_there),   FIELD(U64, pinned),        FIELD(U64, weights_moved),
    FIELD(REAL, cpu_share),     FIELD(REAL, stream_share), FIELD(REAL, transfer_share),
    FIELD(REAL, exposed_share), FIELD(REAL, predicted_ms), FIELD(REAL, observed_ms),
    FIELD(U64, plans_refused),  FIELD(U32, fallbacks),     FIELD(U32, verify_n),
    FIELD(U32, verify_same),    FIELD(REAL, verify_worst),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

static bool first;

bool sweep_format_known(const char *format)
{
    return strcmp(format, "md") == 0 || strcmp(format, "csv") == 0 || strcmp(format, "json") == 0 ||
           strcmp(format, "jsonl") == 0;
}

/* In double quotes: JSON escapes, CSV doubles. */
static void put_text(const char *s, bool json)
{
    (void)putchar('"');
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c < 0x20)
            (void)(json ? printf("\\u%04x", c) : putchar(' '));
        else if (c == '"' || (json && c == '\\'))
            (void)printf("%c%c", json ? '\\' : '"', c);
        else
            (void)putchar(c);
    }
    (void)putchar('"');
}

static void put_value(const struct sweep_row *row, const struct field *f, bool json)
{
    const char *at = (const char *)row + f->offset, *text;
    uint32_t u32;
    uint64_t u64;
    double real;
    switch (f->kind) {
    case TEXT:
        memcpy(&text, at, sizeof text);
        put_text(text, json);
        break;
    case U32:
        memcpy(&u32, at, sizeof u32);
        (void)printf("%u", u32);
        break;
    case U64:
        memcpy(&u64, at, sizeof u64);
        (void)printf("%llu", (unsigned long long)u64);
        break;
    case REAL:
        memcpy(&real, at, sizeof real);
        (void)(isfinite(real) ? printf("%.6g", real) : printf(json ? "null" : ""));
        break;
    }
}

static void put_object(const struct sweep_row *row)
{
    (void)putchar('{');
    for (size_t i = 0; i < N_FIELDS; i++) {
        (void)printf("%s\"%s\": ", i > 0 ? ", " : "", fields[i].name);
        put_value(row, &fields[i], true);
    }
    (void)putchar('}');
}

static void put_csv(const struct sweep_row *row)
{
    for (size_t i = 0; i < N_FIELDS; i++) {
        if (i > 0)
            (void)putchar(',');
        if (row != NULL)
            put_value(row, &fields[i], false);
        else
            (void)fputs(fields[i].name, stdout);
    }
    (void)putchar('\n');
}

static void put_md(const struct sweep_row *row)
{
    char there[32], moved[32], same[64] = "";
    if (row->verify_n > 0)
        (void)snprintf(same, sizeof same, "%u of %u, %.1e", row->verify_same, row->verify_n,
                       row->verify_worst);
    (void)printf("| %s | %s | %.2f | %.2f | %u of %u | %s | %s | %.0f %% | %s |\n", row->vram,
                 row->policy, row->prefill_ts, row->decode_ts, row->n_resident, row->n_items,
                 cli_bytes(row->weights_there, there), cli_bytes(row->weights_moved, moved),
                 100 * row->exposed_share, same);
}

void sweep_begin(const char *format, uint32_t n_prompt, uint32_t n_gen)
{
    first = true;
    if (strcmp(format, "md") == 0)
        (void)printf("| vram | policy | pp%u t/s | tg%u t/s | items there | weights there | "
                     "weights moved | exposed | same as the CPU |\n"
                     "| --- | --- | ---: | ---: | ---: | ---: | ---: | ---: | --- |\n",
                     n_prompt, n_gen);
    else if (strcmp(format, "csv") == 0)
        put_csv(NULL);
    else if (strcmp(format, "json") == 0)
        (void)putchar('[');
}

void sweep_print(const char *format, const struct sweep_row *row)
{
    if (strcmp(format, "md") == 0) {
        put_md(row);
    } else if (strcmp(format, "csv") == 0) {
        put_csv(row);
    } else {
        bool list = strcmp(format, "json") == 0;
        (void)fputs(!list ? "" : first ? "\n  " : ",\n  ", stdout);
        put_object(row);
        (void)fputs(list ? "" : "\n", stdout);
    }
    first = false;
    (void)fflush(stdout); /* its failure shows at the end */
}

void sweep_end(const char *format)
{
    if (strcmp(format, "json") == 0)
        (void)fputs("\n]\n", stdout);
}
