/* SPDX-License-Identifier: Apache-2.0
 *
 * Scheduling instances from JSON.  A file is an array of {"input": {...}, "expect": {...}}; "input"
 * holds lists of one number per operator and a few scalars (docs/scheduling.md, "Instances"). Files
 * come from anywhere: every number is checked before it is used.
 */
#include "cli/policy.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

/* Where we are, for messages. */
struct place {
    const char *path;
    size_t entry;
};

#define FAIL(at, fmt, ...)                                                                         \
    cli_fail(CLI_RUN_ERROR, "%s: entry %zu: " fmt, (at)->path, (at)->entry, __VA_ARGS__)

int policy_load_array(const char *path, json_t **out)
{
    json_error_t e;
    FILE *f = fopen(path, "rb");
    if (f == NULL)
        return cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(errno));
    errno = 0;
    *out = json_loadf(f, JSON_REJECT_DUPLICATES, &e);
    if (*out == NULL && ferror(f) != 0) {
        int why = errno;
        (void)fclose(f);
        return cli_fail(CLI_RUN_ERROR, "%s: %s", path, strerror(why));
    }
    (void)fclose(f); /* only read from */
    if (*out == NULL)
        return cli_fail(CLI_RUN_ERROR, "%s: line %d: not JSON: %s", path, e.line, e.text);
    if (json_is_array(*out))
        return CLI_OK;
    json_decref(*out);
    *out = NULL;
    return cli_fail(CLI_RUN_ERROR, "%s: a JSON array is expected", path);
}

/* The lists of an instance: where each goes, what it may hold, what it is when it is not there. */
enum kind { INT64, DOUBLE, INT32, INT8, BYTE };
struct list {
    const char *key;
    size_t offset;
    double value; /* when missing */
    enum kind kind;
    int required;
};
#define OP(member) offsetof(struct sched_op, member)

static const struct list lists[] = {
    {"s", OP(s), 0, INT64, 0},           {"tc", OP(tc), 0, INT64, 1},
    {"tg", OP(tg), 0, INT64, 1},         {"c", OP(c), 0, INT64, 0},
    {"w", OP(w), 0, INT64, 0},           {"cg", OP(cg), 0, INT64, 0},
    {"gc", OP(gc), 0, INT64, 0},         {"evt", OP(evt), 0, INT64, 0},
    {"km", OP(km), 1, DOUBLE, 0},        {"kx", OP(kx), 1, DOUBLE, 0},
    {"rel", OP(rel), -1, INT32, 0},      {"layer", OP(layer), -1, INT32, 0},
    {"promo", OP(promo), 1, BYTE, 0},    {"is_exp", OP(is_exp), 0, BYTE, 0},
    {"pinned", OP(pinned), -1, INT8, 0},
};

/* Stores v; false when the member cannot hold it. */
static bool store(const struct list *l, struct sched_op *op, json_int_t v, double x)
{
    void *to = (char *)op + l->offset;
    switch (l->kind) {
    case INT64:
        *(int64_t *)to = v;
        return true;
    case DOUBLE:
        *(double *)to = x;
        return true;
    case INT32:
        *(int32_t *)to = (int32_t)v;
        return v >= INT32_MIN && v <= INT32_MAX;
    case INT8:
        *(int8_t *)to = (int8_t)v;
        return v >= INT8_MIN && v <= INT8_MAX;
    default:
        *(uint8_t *)to = (uint8_t)v;
        return v >= 0 && v <= UINT8_MAX;
    }
}

/* A list of `n` elements at `key`; NULL and *code = CLI_OK when it is missing. */
static const json_t *get_list(const struct place *at, const json_t *in, const char *key, uint32_t n,
                              int *code)
{
    const json_t *v = json_object_get(in, key);
    *code = CLI_OK;
    if (v == NULL)
        return NULL;
    if (!json_is_array(v) || json_array_size(v) != n) {
        *code = FAIL(at, "input.%s: a list of %u numbers is expected, as long as tc", key, n);
        return NULL;
    }
    return v;
}

static int read_list(const struct place *at, const json_t *in, const struct list *l,
                     struct sched_op *op, uint32_t n)
{
    int code;
    const json_t *v = get_list(at, in, l->key, n, &code);
    if (code != CLI_OK)
        return code;
    if (v == NULL && l->required)
        return FAIL(at, "input.%s is missing", l->key);
    for (uint32_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (v == NULL) {
            (void)store(l, &op[i], (json_int_t)l->value, l->value);
            continue;
        }
        if (l->kind == DOUBLE ? !json_is_number(x) : !json_is_integer(x))
            return FAIL(at, "input.%s[%u] is no %s", l->key, i,
                        l->kind == DOUBLE ? "number" : "whole number");
        if (!store(l, &op[i], json_integer_value(x), json_number_value(x)))
            return FAIL(at, "input.%s[%u] is %" JSON_INTEGER_FORMAT ", out of range", l->key, i,
                        json_integer_value(x));
    }
    return CLI_OK;
}

static int read_sides(const struct place *at, const json_t *in, uint8_t *b, uint32_t n)
{
    int code;
    const json_t *v = get_list(at, in, "b", n, &code);
    if (code != CLI_OK || v == NULL)
        return code; /* all on the CPU */
    for (uint32_t i = 0; i < n; i++) {
        const json_t *x = json_array_get(v, i);
        if (!json_is_integer(x) || json_integer_value(x) < 0 || json_integer_value(x) > 1)
            return FAIL(at, "input.b[%u] is neither 0 nor 1", i);
        b[i] = (uint8_t)json_integer_value(x);
    }
    return CLI_OK;
}

struct scalar {
    const char *key;
    int64_t *to;
};

static int read_scalars(const struct place *at, const json_t *in, struct sched_chain *ch)
{
    const struct scalar ints[] = {
        {"rlat", &ch->rlat}, {"out", &ch->out}, {"gap", &ch->gap}, {"M", &ch->budget}};
    const struct {
        const char *key;
        double *to;
    } speeds[] = {{"am", &ch->am}, {"ax", &ch->ax}};
    for (size_t k = 0; k < sizeof ints / sizeof ints[0]; k++) {
        const json_t *v = json_object_get(in, ints[k].key);
        if (v != NULL && !json_is_integer(v))
            return FAIL(at, "input.%s is no whole number", ints[k].key);
        *ints[k].to = json_integer_value(v);
    }
    for (size_t k = 0; k < sizeof speeds / sizeof speeds[0]; k++) {
        const json_t *v = json_object_get(in, speeds[k].key);
        if (v != NULL && !json_is_number(v))
            return FAIL(at, "input.%s is no number", speeds[k].key);
        *speeds[k].to = v != NULL ? json_number_value(v) : 1.0;
    }
    return CLI_OK;
}

/* "depth": class number (as text) -> slots; classes are renumbered from 0. */
static int read_depth(const struct place *at, const json_t *in, struct sched_chain *ch,
                      uint32_t *depth, json_int_t *class_of)
{
    json_t *all = json_object_get(in, "depth"), *v;
    const char *key;
    if (all == NULL) {
        depth[0] = 2;
        class_of[0] = 0;
        ch->n_classes = 1;
        return CLI_OK;
    }
    if (!json_is_object(all) || json_object_size(all) == 0 ||
        json_object_size(all) > SCHED_MAX_CLASSES)
        return FAIL(at, "input.depth: an object of 1 to %u slot classes is expected",
                    SCHED_MAX_CLASSES);
    json_object_foreach(all, key, v)
    {
        char *end;
        errno = 0;
        class_of[ch->n_classes] = strtoll(key, &end, 10);
        if (end == key || *end != '\0' || errno != 0)
            return FAIL(at, "input.depth: class \"%.20s\" is no whole number", key);
        if (!json_is_integer(v) || json_integer_value(v) < 1 || json_integer_value(v) > UINT32_MAX)
            return FAIL(at, "input.depth: class %.20s has no positive number of slots", key);
        depth[ch->n_classes++] = (uint32_t)json_integer_value(v);
    }
    return CLI_OK;
}

static int read_roles(const struct place *at, const json_t *in, const struct sched_chain *ch,
                      const json_int_t *class_of, struct sched_op *op)
{
    int code;
    const json_t *v = get_list(at, in, "role", ch->n, &code);
    for (uint32_t i = 0; code == CLI_OK && i < ch->n; i++) {
        const json_t *x = v != NULL ? json_array_get(v, i) : NULL;
        json_int_t want = json_integer_value(x); /* 0 when missing */
        uint32_t q = 0;
        if (x != NULL && !json_is_integer(x))
            return FAIL(at, "input.role[%u] is no whole number", i);
        while (q < ch->n_classes && class_of[q] != want)
            q++;
        if (q == ch->n_classes)
            return FAIL(at, "input.role[%u] is %" JSON_INTEGER_FORMAT ", a class without depth", i,
                        want);
        op[i].role = (uint16_t)q;
    }
    return code;
}

static int count_operators(const struct place *at, const json_t *in, uint32_t *n_out)
{
    const json_t *tc = json_object_get(in, "tc"), *n = json_object_get(in, "n");
    if (!json_is_array(tc))
        return FAIL(at, "input.%s is missing or no list", "tc");
    if (json_array_size(tc) > SCHED_MAX_OPS)
        return FAIL(at, "%zu operators, at most %u are supported", json_array_size(tc),
                    SCHED_MAX_OPS);
    if (n != NULL &&
        (!json_is_integer(n) || json_integer_value(n) != (json_int_t)json_array_size(tc)))
        return FAIL(at, "input.n is not the length of input.tc, which is %zu", json_array_size(tc));
    *n_out = (uint32_t)json_array_size(tc);
    return CLI_OK;
}

static int fill_chain(const struct place *at, const json_t *in, struct sched_chain *ch,
                      struct sched_op *op, uint8_t *b, uint32_t *depth)
{
    json_int_t class_of[SCHED_MAX_CLASSES];
    struct atsi_err err = ATSI_ERR_INIT;
    int code = read_scalars(at, in, ch);
    for (size_t k = 0; code == CLI_OK && k < sizeof lists / sizeof lists[0]; k++)
        code = read_list(at, in, &lists[k], op, ch->n);
    if (code == CLI_OK)
        code = read_sides(at, in, b, ch->n);
    if (code == CLI_OK)
        code = read_depth(at, in, ch, depth, class_of);
    if (code == CLI_OK)
        code = read_roles(at, in, ch, class_of, op);
    if (code == CLI_OK && sched_chain_check(ch, &err) != ATSI_OK)
        code = FAIL(at, "%s", err.msg);
    return code;
}

static int read_instance(const struct place *at, const json_t *entry, struct policy_instance *out)
{
    const json_t *in = json_object_get(entry, "input"), *name = json_object_get(in, "name");
    int code;
    if (!json_is_object(in))
        return FAIL(at, "there is no object \"%s\"", "input");
    code = count_operators(at, in, &out->chain.n);
    if (code != CLI_OK)
        return code;
    out->chain.op = out->op = calloc((size_t)out->chain.n + 1, sizeof *out->op);
    out->chain.b = out->b = calloc((size_t)out->chain.n + 1, 1);
    out->chain.depth = out->depth = calloc(SCHED_MAX_CLASSES, sizeof *out->depth);
    if (out->op == NULL || out->b == NULL || out->depth == NULL)
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    out->name = json_is_string(name) ? json_string_value(name) : "";
    out->expect = json_object_get(entry, "expect");
    return fill_chain(at, in, &out->chain, out->op, out->b, out->depth);
}

static int read_instances(struct policy_file *f)
{
    struct place at = {.path = f->path};
    int code = CLI_OK;
    f->item = calloc(json_array_size(f->root) + 1, sizeof *f->item);
    if (f->item == NULL) {
        (void)cli_fail(CLI_RUN_ERROR, "out of memory");
        return CLI_RUN_ERROR;
    }
    for (; code == CLI_OK && at.entry < json_array_size(f->root); at.entry++) {
        f->n = at.entry + 1;
        code = read_instance(&at, json_array_get(f->root, at.entry), &f->item[at.entry]);
    }
    return code;
}

int policy_file_open(const char *path, struct policy_file *out)
{
    int code;
    *out = (struct policy_file){.path = path};
    code = policy_load_array(path, &out->root);
    if (code == CLI_OK)
        code = read_instances(out);
    if (code != CLI_OK)
        policy_file_close(out);
    return code;
}

void policy_file_close(struct policy_file *f)
{
    for (size_t i = 0; f->item != NULL && i < f->n; i++) {
        free(f->item[i].op);
        free(f->item[i].b);
        free(f->item[i].depth);
    }
    free(f->item);
    json_decref(f->root);
    *f = (struct policy_file){0};
}

int policy_read_plan(const struct policy_file *f, size_t item, const char *plan, const char *text,
                     uint8_t *rb_out)
{
    const struct place at = {f->path, item};
    const struct sched_chain *ch = &f->item[item].chain;
    struct atsi_err err = ATSI_ERR_INIT;
    if (text == NULL || strlen(text) != ch->n || strspn(text, "01") != ch->n)
        return FAIL(&at, "plan %.40s: rb is no text of %u characters 0 and 1", plan, ch->n);
    for (uint32_t i = 0; i < ch->n; i++)
        rb_out[i] = (uint8_t)(text[i] - '0');
    if (sched_plan_check(ch, rb_out, &err) != ATSI_OK)
        return FAIL(&at, "plan %.40s: %s", plan, err.msg);
    return CLI_OK;
}

void policy_write_bits(const uint8_t *side, uint32_t n, char *text_out)
{
    for (uint32_t i = 0; i < n; i++)
        text_out[i] = (char)('0' + side[i]);
    text_out[n] = '\0';
}
