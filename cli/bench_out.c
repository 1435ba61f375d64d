/* SPDX-License-Identifier: Apache-2.0
 *
 * The output formats of `atsinfer bench`.  One table names the fields; every machine-readable
 * format walks it, so they cannot drift apart.
 */
#include "cli/bench.h"

#include <math.h>
#include <stddef.h>
#include <string.h>

enum kind { KIND_TEXT, KIND_TIME, KIND_U32, KIND_U64, KIND_REAL, KIND_SAMPLES };

struct field {
    const char *name;
    enum kind kind;
    size_t offset;
};

#define FIELD(name, kind, member)                                                                  \
    {                                                                                              \
        name, kind, offsetof(struct bench_row, member)                                             \
    }

static const struct field fields[] = {
    FIELD("cpu_info", KIND_TEXT, cpu_info),
    FIELD("backends", KIND_TEXT, backend),
    FIELD("model_filename", KIND_TEXT, model_filename),
    FIELD("model_type", KIND_TEXT, model_type),
    FIELD("model_size", KIND_U64, model_size),
    FIELD("model_n_params", KIND_U64, model_n_params),
    FIELD("n_ubatch", KIND_U32, n_ubatch),
    FIELD("n_threads", KIND_U32, n_threads),
    FIELD("type_k", KIND_TEXT, type_k),
    FIELD("type_v", KIND_TEXT, type_v),
    FIELD("n_prompt", KIND_U32, n_prompt),
    FIELD("n_gen", KIND_U32, n_gen),
    FIELD("n_depth", KIND_U32, n_depth),
    FIELD("test_time", KIND_TIME, test_time),
    FIELD("avg_ns", KIND_REAL, avg_ns),
    FIELD("stddev_ns", KIND_REAL, stddev_ns),
    FIELD("avg_ts", KIND_REAL, avg_ts),
    FIELD("stddev_ts", KIND_REAL, stddev_ts),
    FIELD("median_ts", KIND_REAL, median_ts),
    FIELD("ratio", KIND_REAL, ratio),
    FIELD("bytes_per_token", KIND_REAL, bytes_per_token),
    FIELD("read_gbps", KIND_REAL, read_gbps),
    FIELD("peak_gmacs", KIND_REAL, peak_gmacs),
    FIELD("limit_share", KIND_REAL, limit_share),
    FIELD("ttft_ms", KIND_REAL, ttft_ms),
    FIELD("accel", KIND_TEXT, accel),
    FIELD("cpu_share", KIND_REAL, cpu_share),
    FIELD("stream_share", KIND_REAL, stream_share),
    FIELD("transfer_share", KIND_REAL, transfer_share),
    FIELD("exposed_share", KIND_REAL, exposed_share),
    FIELD("pcie_weight_bytes", KIND_U64, pcie_weight_bytes),
    FIELD("pcie_activation_bytes", KIND_U64, pcie_activation_bytes),
    FIELD("pcie_result_bytes", KIND_U64, pcie_result_bytes),
    FIELD("plans_made", KIND_U64, plans_made),
    FIELD("plans_kept", KIND_U64, plans_kept),
    FIELD("plans_refused", KIND_U64, plans_refused),
    FIELD("predicted_ms", KIND_REAL, predicted_ms),
    FIELD("observed_ms", KIND_REAL, observed_ms),
    FIELD("samples_ns", KIND_SAMPLES, samples_ns),
};
enum { N_FIELDS = sizeof fields / sizeof fields[0] };

struct bench_format {
    const char *name;
    void (*begin)(void);
    void (*row)(const struct bench_row *r);
    void (*end)(void);
};

static bool first_row, with_rivals;

/* A string with `quote` doubled (CSV, SQL) or escaped by a backslash (JSON). */
static void put_quoted(const char *s, char quote, bool json)
{
    (void)putchar(quote);
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (json && (c == '"' || c == '\\'))
            (void)printf("\\%c", c);
        else if (json && c < 0x20)
            (void)printf("\\u%04x", c);
        else if (!json && c == (unsigned char)quote)
            (void)printf("%c%c", quote, quote);
        else
            (void)putchar(c);
    }
    (void)putchar(quote);
}

static void put_samples(const struct bench_row *r)
{
    (void)putchar('[');
    for (uint32_t i = 0; i < r->n_samples; i++)
        (void)printf("%s%llu", i > 0 ? "," : "", (unsigned long long)r->samples_ns[i]);
    (void)putchar(']');
}

static void put_value(const struct bench_row *r, const struct field *f, char quote, bool json)
{
    const char *at = (const char *)r + f->offset;
    uint64_t u64;
    uint32_t u32;
    double real;
    const char *text;
    switch (f->kind) {
    case KIND_TEXT:
        memcpy(&text, at, sizeof text);
        put_quoted(text, quote, json);
        break;
    case KIND_TIME:
        put_quoted(at, quote, json);
        break;
    case KIND_U32:
        memcpy(&u32, at, sizeof u32);
        (void)printf("%u", u32);
        break;
    case KIND_U64:
        memcpy(&u64, at, sizeof u64);
        (void)printf("%llu", (unsigned long long)u64);
        break;
    case KIND_REAL:
        memcpy(&real, at, sizeof real);
        (void)printf("%.6g", real);
        break;
    case KIND_SAMPLES:
        put_samples(r);
        break;
    }
}

/* Samples are a list, which only JSON can hold. */
static bool flat(const struct field *f)
{
    return f->kind != KIND_SAMPLES;
}

static void put_names(char quote, const char *separator)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (flat(&fields[i]))
            (void)printf("%s%.*s%s%.*s", i > 0 ? separator : "", quote != 0, &quote, fields[i].name,
                         quote != 0, &quote);
}

static void put_flat_values(const struct bench_row *r, char quote)
{
    for (size_t i = 0; i < N_FIELDS; i++)
        if (flat(&fields[i])) {
            if (i > 0)
                (void)putchar(',');
            put_value(r, &fields[i], quote, false);
        }
}

static void csv_begin(void)
{
    put_names('"', ",");
    (void)putchar('\n');
}

static void csv_row(const struct bench_row *r)
{
    put_flat_values(r, '"');
    (void)putchar('\n');
}

static void put_object(const struct bench_row *r)
{
    (void)putchar('{');
    for (size_t i = 0; i < N_FIELDS; i++) {
        (void)printf("%s\"%s\": ", i > 0 ? ", " : "", fields[i].name);
        put_value(r, &fields[i], '"', true);
    }
    (void)putchar('}');
}

static void json_begin(void)
{
    first_row = true;
    (void)putchar('[');
}

static void json_row(const struct bench_row *r)
{
    (void)fputs(first_row ? "\n  " : ",\n  ", stdout);
    first_row = false;
    put_object(r);
}

static void json_end(void)
{
    (void)fputs("\n]\n", stdout);
}

static void jsonl_row(const struct bench_row *r)
{
    put_object(r);
    (void)putchar('\n');
}

static void sql_begin(void)
{
    (void)fputs("CREATE TABLE IF NOT EXISTS llama_bench (", stdout);
    for (size_t i = 0; i < N_FIELDS; i++)
        if (flat(&fields[i]))
            (void)printf("%s%s %s", i > 0 ? ", " : "", fields[i].name,
                         fields[i].kind == KIND_TEXT || fields[i].kind == KIND_TIME ? "TEXT"
                         : fields[i].kind == KIND_REAL                              ? "REAL"
                                                                                    : "INTEGER");
    (void)fputs(");\n", stdout);
}

static void sql_row(const struct bench_row *r)
{
    (void)fputs("INSERT INTO llama_bench (", stdout);
    put_names('\0', ", ");
    (void)fputs(") VALUES (", stdout);
    put_flat_values(r, '\'');
    (void)fputs(");\n", stdout);
}

/* Beside rivals medians are printed: they are what is compared. */
static void md_begin(void)
{
    (void)fputs(with_rivals
                    ? "| model | size | params | backend | threads | test | t/s, median | "
                      "of limit | ours / theirs |\n"
                      "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: | ---: |\n"
                    : "| model | size | params | backend | threads | test | t/s | of limit |\n"
                      "| --- | ---: | ---: | --- | ---: | ---: | ---: | ---: |\n",
                stdout);
}

static void md_row(const struct bench_row *r)
{
    char size[32], test[64], share[32] = "";
    if (r->limit_share > 0)
        (void)snprintf(share, sizeof share, "%.0f %%", r->limit_share * 100.0);
    (void)printf("| %s | %s | %.2f M | %s | %u | %s | %.2f \xc2\xb1 %.2f | %s |", r->model_type,
                 cli_bytes(r->model_size, size), (double)r->model_n_params / 1e6, r->backend,
                 r->n_threads, bench_test_name(r->n_prompt, r->n_gen, r->n_depth, test),
                 with_rivals ? r->median_ts : r->avg_ts, r->stddev_ts, share);
    if (with_rivals)
        (void)printf(" %.2f |", r->ratio);
    (void)putchar('\n');
    (void)fflush(stdout);
}

static void nothing(void)
{
}

static const struct bench_format formats[] = {
    {"md", md_begin, md_row, nothing},        {"csv", csv_begin, csv_row, nothing},
    {"json", json_begin, json_row, json_end}, {"jsonl", nothing, jsonl_row, nothing},
    {"sql", sql_begin, sql_row, nothing},
};

const struct bench_format *bench_format_find(const char *name)
{
    for (size_t i = 0; i < sizeof formats / sizeof formats[0]; i++)
        if (strcmp(formats[i].name, name) == 0)
            return &formats[i];
    return NULL;
}

void bench_begin(const struct bench_format *f, bool rivals)
{
    with_rivals = rivals;
    f->begin();
}

void bench_print(const struct bench_format *f, const struct bench_row *row)
{
    f->row(row);
}

void bench_end(const struct bench_format *f)
{
    f->end();
}
