/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer inspect` for people: a page of text.  Strings of the file are cut, and everything in
 * them that could move a cursor or turn text around is escaped. */
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "cli/inspect.h"
#include "text/utf8.h"

#define SHOW_CHARS 60   /* of a string */
#define SHOW_ELEMENTS 6 /* of an array */

/* Control characters, and those that change the direction of text. */
static bool is_unsafe(uint32_t cp)
{
    return cp < 0x20 || (cp >= 0x7f && cp < 0xa0) || cp == 0x200e || cp == 0x200f ||
           (cp >= 0x2028 && cp <= 0x202e) || (cp >= 0x2066 && cp <= 0x2069) ||
           (cp >= 0xd800 && cp < 0xe000) || cp == 0xfeff;
}

/* A failed write stays in the stream and is found by cli_finish_stdout(). */
static void put(const char *text)
{
    (void)fputs(text, stdout);
}

static void print_str(const struct atsi_str *s, uint64_t max_chars)
{
    uint64_t at = 0;
    for (uint64_t n = 0; at < s->len && n < max_chars; n++) {
        uint32_t cp = 0;
        size_t left = (size_t)(s->len - at), bytes = atsi_utf8_decode(s->ptr + at, left, &cp);
        if (bytes == 0) {
            printf("\\x%02x", (unsigned char)s->ptr[at]);
            bytes = 1;
        } else if (cp == '\n' || cp == '\t') {
            put(cp == '\n' ? "\\n" : "\\t");
        } else if (is_unsafe(cp)) {
            printf("\\u%04" PRIx32, cp);
        } else {
            (void)fwrite(s->ptr + at, 1, bytes, stdout);
        }
        at += bytes;
    }
    if (at < s->len)
        put("...");
}

/* As few digits as give the value back. */
static void print_float(const struct atsi_meta *v)
{
    char text[40];
    for (int digits = 6; digits <= 17; digits++) {
        (void)snprintf(text, sizeof text, "%.*g", digits, v->v.f);
        if (v->type == ATSI_META_F32 ? strtof(text, NULL) == (float)v->v.f
                                     : strtod(text, NULL) == v->v.f)
            break;
    }
    put(text);
}

static void print_scalar(const struct atsi_meta *v)
{
    int64_t i;
    if (v->type == ATSI_META_STRING) {
        putchar('"');
        print_str(&v->str, SHOW_CHARS);
        putchar('"');
    } else if (v->type == ATSI_META_F32 || v->type == ATSI_META_F64) {
        print_float(v);
    } else if (v->type == ATSI_META_BOOL) {
        put(v->v.u != 0 ? "true" : "false");
    } else if (inspect_integer(v, &i)) {
        printf("%" PRId64, i);
    } else {
        printf("%" PRIu64, v->v.u);
    }
}

static void print_value(const struct atsi_meta *v)
{
    if (v->type != ATSI_META_ARRAY) {
        print_scalar(v);
        return;
    }
    putchar('[');
    for (uint64_t i = 0; i < v->count && i < SHOW_ELEMENTS; i++) {
        struct atsi_meta e = inspect_element(v, i);
        if (i > 0)
            put(", ");
        print_scalar(&e);
    }
    if (v->count > SHOW_ELEMENTS)
        printf(", ... %" PRIu64 " in all", v->count);
    putchar(']');
}

static void print_field(const char *label, const char *value)
{
    if (value[0] != '\0')
        printf("  %-15s %s\n", label, value);
}

static void print_meta_field(const struct inspect_report *r, const char *label, const char *key)
{
    struct atsi_meta v;
    if (!inspect_meta(r, key, &v) || v.type != ATSI_META_STRING || v.str.len == 0)
        return;
    printf("  %-15s ", label);
    print_str(&v.str, SHOW_CHARS);
    putchar('\n');
}

/* ---------------------------------------------------------------- sections */
static void print_quantization(const struct inspect_report *r)
{
    if (r->n_types == 0)
        return;
    printf("  %-15s %s%s", "quantization", r->quantization, r->quantization[0] ? " (" : "");
    for (uint32_t i = 0; i < r->n_types; i++)
        printf("%s%s %.1f %%", i > 0 ? ", " : "", r->types[i].name,
               r->n_bytes > 0 ? 100.0 * (double)r->types[i].n_bytes / (double)r->n_bytes : 0.0);
    printf("%s\n", r->quantization[0] ? ")" : "");
    if (r->n_params > 0 && r->n_unsized == 0)
        printf("  %-15s %.2f\n", "bits per weight", 8.0 * (double)r->n_bytes / (double)r->n_params);
}

/* "1.54 B" */
static const char *count_text(uint64_t n, char buf[32])
{
    static const char *const unit[] = {"", " K", " M", " B", " T", " Q"};
    double x = (double)n;
    int u = 0;
    while (x >= 1000.0 && u < 5) {
        x /= 1000.0;
        u++;
    }
    (void)snprintf(buf, 32, u == 0 ? "%.0f%s" : "%.2f%s", x, unit[u]);
    return buf;
}

static void print_head(const struct inspect_report *r)
{
    const struct atsi_str path = {r->path, strlen(r->path)};
    char bytes[32], count[32], active[32], text[160];
    print_str(&path, UINT64_MAX);
    putchar('\n');
    (void)snprintf(text, sizeof text, "%s, %s", r->kind, r->info->format);
    print_field("kind", text);
    print_field("architecture", r->info->arch);
    print_meta_field(r, "general.type", "general.type");
    print_meta_field(r, "name", "general.name");
    print_meta_field(r, "size label", "general.size_label");
    print_meta_field(r, "license", "general.license");
    print_quantization(r);
    if (r->info->n_tensors > 0)
        printf("  %-15s %s (%" PRIu64 ")%s%s%s\n", "parameters", count_text(r->n_params, count),
               r->n_params, r->n_active != r->n_params ? ", " : "",
               r->n_active != r->n_params ? count_text(r->n_active, active) : "",
               r->n_active != r->n_params ? " active per token" : "");
    (void)snprintf(text, sizeof text, "%s (%" PRIu64 " bytes) in %" PRIu32 " file%s",
                   cli_bytes(r->info->file_bytes, bytes), r->info->file_bytes, r->info->n_files,
                   r->info->n_files == 1 ? "" : "s");
    print_field("size", text);
    (void)snprintf(text, sizeof text, "%" PRIu32 " metadata entries, %" PRIu32 " tensors",
                   r->info->n_meta, r->info->n_tensors);
    print_field("holds", text);
}

static void print_entries(const struct inspect_report *r, bool all)
{
    bool any = false;
    char type[48];
    for (uint32_t i = 0; i < r->info->n_meta; i++) {
        struct atsi_meta v = {.struct_size = sizeof v};
        struct atsi_str key;
        if (atsi_model_meta_at(r->model, i, &v) != ATSI_OK || (!all && !inspect_is_hparam(r, &v)))
            continue;
        if (!any)
            put(all ? "\nmetadata\n" : "\nhyperparameters\n");
        any = true;
        key = v.key;
        if (!all) { /* without "ARCH." */
            key.ptr += strlen(r->info->arch) + 1;
            key.len -= strlen(r->info->arch) + 1;
        }
        put("  ");
        print_str(&key, UINT64_MAX);
        printf("%*s ", key.len < 40 ? (int)(40 - key.len) : 0, "");
        if (all)
            printf("%-16s ", inspect_type_text(&v, type));
        print_value(&v);
        putchar('\n');
    }
}

static void print_token(const struct inspect_report *r, const char *name)
{
    struct atsi_meta id, tokens;
    char key[64];
    int64_t i;
    (void)snprintf(key, sizeof key, "tokenizer.ggml.%s_token_id", name);
    if (!inspect_meta(r, key, &id) || !inspect_integer(&id, &i))
        return;
    printf("  %-15s %" PRId64, name, i);
    if (inspect_meta(r, "tokenizer.ggml.tokens", &tokens) && tokens.type == ATSI_META_ARRAY &&
        tokens.elem_type == ATSI_META_STRING && i >= 0 && (uint64_t)i < tokens.count) {
        put(" \"");
        print_str(&tokens.strs[i], SHOW_CHARS);
        putchar('"');
    }
    putchar('\n');
}

static void print_array_len(const struct inspect_report *r, const char *label, const char *key)
{
    struct atsi_meta v;
    if (inspect_meta(r, key, &v) && v.type == ATSI_META_ARRAY)
        printf("  %-15s %" PRIu64 "\n", label, v.count);
}

static void print_template(const struct inspect_report *r)
{
    struct atsi_meta v;
    if (!inspect_meta(r, "tokenizer.chat_template", &v) || v.type != ATSI_META_STRING)
        print_field("chat template", "none");
    else
        printf("  %-15s %" PRIu64 " bytes\n", "chat template", v.str.len);
    if (inspect_meta(r, "tokenizer.chat_templates", &v)) {
        printf("  %-15s ", "more templates");
        print_value(&v);
        putchar('\n');
    }
}

static void print_tokenizer(const struct inspect_report *r)
{
    struct atsi_meta v;
    if (!inspect_meta(r, "tokenizer.ggml.model", &v))
        return;
    put("\ntokenizer\n");
    print_meta_field(r, "model", "tokenizer.ggml.model");
    print_meta_field(r, "pre-tokenizer", "tokenizer.ggml.pre");
    print_array_len(r, "tokens", "tokenizer.ggml.tokens");
    print_array_len(r, "merges", "tokenizer.ggml.merges");
    for (uint32_t i = 0; inspect_special_tokens[i] != NULL; i++)
        print_token(r, inspect_special_tokens[i]);
    print_template(r);
}

static void print_tallies(const char *title, const struct inspect_tally *t, uint32_t n,
                          uint64_t total)
{
    char bytes[32], count[32];
    printf("\n%-15s %9s %12s %12s %8s\n", title, "tensors", "elements", "bytes", "share");
    for (uint32_t i = 0; i < n; i++) {
        if (t[i].n_tensors == 0)
            continue;
        printf("  %-13s %9" PRIu64 " %12s %12s %6.1f %%\n", t[i].name, t[i].n_tensors,
               count_text(t[i].n_elems, count), cli_bytes(t[i].n_bytes, bytes),
               total > 0 ? 100.0 * (double)t[i].n_bytes / (double)total : 0.0);
    }
}

static void print_memory(const struct inspect_report *r)
{
    const struct atsi_session_info *p = &r->plan;
    char bytes[32], more[32], type[48];
    if (r->info->file_kind != ATSI_FILE_MODEL)
        return;
    put("\nmemory\n");
    print_field("weights", cli_bytes(r->n_bytes, bytes));
    if (r->plan_status != ATSI_OK) {
        const struct atsi_str why = {r->plan_err.msg, strlen(r->plan_err.msg)};
        put("  cannot be used  ");
        print_str(&why, UINT64_MAX);
        putchar('\n');
        return;
    }
    printf("  %-15s %s for a context of %" PRIu32 " (%s)", "KV cache",
           cli_bytes(p->kv_bytes, bytes), p->n_ctx, inspect_kv_type(r, type));
    if (r->kv_per_token > 0)
        printf(", %s per further token", cli_bytes(r->kv_per_token, more));
    putchar('\n');
    if (p->state_bytes > 0)
        printf("  %-15s %s, whatever the context\n", "states", cli_bytes(p->state_bytes, bytes));
    printf("  %-15s %s for rounds of %" PRIu32 " tokens\n", "buffers",
           cli_bytes(p->compute_bytes + p->logits_bytes, bytes), p->chunk);
}

static void print_tensors(const struct inspect_report *r)
{
    printf("\n%-48s %-10s %-24s %12s\n", "tensors", "type", "shape", "bytes");
    for (uint32_t i = 0; i < r->info->n_tensors; i++) {
        const struct atsi_tensor *t = r->info->tensors[i];
        const struct atsi_str name = {t->name, strlen(t->name)};
        char shape[96];
        size_t at = 0;
        shape[0] = '\0';
        for (uint32_t d = 0; d < t->n_dims; d++)
            at += (size_t)snprintf(shape + at, sizeof shape - at, "%s%" PRIu64, d > 0 ? " x " : "",
                                   t->ne[d]);
        put("  ");
        print_str(&name, UINT64_MAX);
        printf("%*s %-10s %-24s %12" PRIu64 "\n", name.len < 46 ? (int)(46 - name.len) : 0, "",
               r->info->type_names[i], shape, inspect_tensor_bytes(t));
    }
}

void inspect_print_text(const struct inspect_report *r)
{
    print_head(r);
    print_entries(r, false);
    print_tokenizer(r);
    print_memory(r);
    if (r->info->n_tensors > 0) {
        print_tallies("by type", r->types, r->n_types, r->n_bytes);
        print_tallies("by role", r->roles, INSPECT_N_ROLES, r->n_bytes);
    }
    if (r->n_unsized > 0)
        printf("  %" PRIu32 " tensors are of types whose size is not known here\n", r->n_unsized);
    if (r->show_meta)
        print_entries(r, true);
    if (r->show_tensors)
        print_tensors(r);
}
