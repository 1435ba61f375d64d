/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer inspect`: what a model file is and what it holds, without loading its weights. */
#include "cli/inspect.h"

#include <stdlib.h>
#include <string.h>

static bool as_json, show_meta, show_tensors;

static const struct cli_option options[] = {
    {.name = "--json", .help = "one JSON object instead of text", .flag = &as_json},
    {.name = "--meta", .help = "list every metadata entry", .flag = &show_meta},
    {.name = "--tensors", .help = "list every tensor", .flag = &show_tensors},
    {.name = NULL},
};

const char *const inspect_special_tokens[] = {"bos",     "eos",     "eot",     "eom",     "unknown",
                                              "padding", "fim_pre", "fim_suf", "fim_mid", NULL};

/* ---------------------------------------------------------------- metadata */
bool inspect_meta(const struct inspect_report *r, const char *name, struct atsi_meta *out)
{
    char key[192];
    out->struct_size = sizeof *out;
    if (name[0] == '.') {
        (void)snprintf(key, sizeof key, "%s%s", r->info->arch, name);
        name = key;
    }
    return atsi_model_meta_find(r->model, name, out) == ATSI_OK;
}

static uint32_t element_bytes(uint32_t type)
{
    switch (type) {
    case ATSI_META_U8:
    case ATSI_META_I8:
    case ATSI_META_BOOL:
        return 1;
    case ATSI_META_U16:
    case ATSI_META_I16:
        return 2;
    case ATSI_META_U32:
    case ATSI_META_I32:
    case ATSI_META_F32:
        return 4;
    default:
        return 8;
    }
}

/* Elements are packed little-endian at any alignment (loader.h). */
struct atsi_meta inspect_element(const struct atsi_meta *array, uint64_t i)
{
    struct atsi_meta e = {.struct_size = sizeof e, .type = array->elem_type};
    uint32_t bytes = element_bytes(array->elem_type), low;
    uint64_t raw = 0, sign = UINT64_C(1) << (8 * bytes - 1);
    float f;
    if (array->type != ATSI_META_ARRAY)
        return *array;
    if (array->elem_type == ATSI_META_STRING) {
        e.str = array->strs[i];
        return e;
    }
    for (uint32_t b = 0; b < bytes; b++)
        raw |= (uint64_t)((const uint8_t *)array->data)[i * bytes + b] << (8 * b);
    switch (array->elem_type) {
    case ATSI_META_F32:
        low = (uint32_t)raw;
        memcpy(&f, &low, sizeof f);
        e.v.f = f;
        break;
    case ATSI_META_F64:
        memcpy(&e.v.f, &raw, sizeof e.v.f);
        break;
    case ATSI_META_I8:
    case ATSI_META_I16:
    case ATSI_META_I32:
    case ATSI_META_I64:
        e.v.i = (int64_t)((raw ^ sign) - sign);
        break;
    default:
        e.v.u = raw;
        break;
    }
    return e;
}

bool inspect_integer(const struct atsi_meta *v, int64_t *out)
{
    switch (v->type) {
    case ATSI_META_I8:
    case ATSI_META_I16:
    case ATSI_META_I32:
    case ATSI_META_I64:
        *out = v->v.i;
        return true;
    case ATSI_META_U8:
    case ATSI_META_U16:
    case ATSI_META_U32:
    case ATSI_META_U64:
        *out = (int64_t)v->v.u;
        return v->v.u <= INT64_MAX;
    default:
        return false;
    }
}

const char *inspect_type_text(const struct atsi_meta *v, char buf[48])
{
    static const char *const names[] = {"u8",   "i8",     "u16",   "i16", "u32", "i32", "f32",
                                        "bool", "string", "array", "u64", "i64", "f64"};
    uint32_t type = v->type == ATSI_META_ARRAY ? v->elem_type : v->type;
    const char *name = type < sizeof names / sizeof names[0] ? names[type] : "?";
    if (v->type == ATSI_META_ARRAY)
        (void)snprintf(buf, 48, "%s[%llu]", name, (unsigned long long)v->count);
    else
        (void)snprintf(buf, 48, "%s", name);
    return buf;
}

bool inspect_is_hparam(const struct inspect_report *r, const struct atsi_meta *v)
{
    size_t n = strlen(r->info->arch);
    return n > 0 && v->key.len > n + 1 && memcmp(v->key.ptr, r->info->arch, n) == 0 &&
           v->key.ptr[n] == '.';
}

/* ---------------------------------------------------------------- kind, file type */
static bool text_is(const struct inspect_report *r, const char *key, const char *value)
{
    struct atsi_meta v;
    return inspect_meta(r, key, &v) && v.type == ATSI_META_STRING && v.str.len == strlen(value) &&
           memcmp(v.str.ptr, value, strlen(value)) == 0;
}

static const char *kind_of(const struct inspect_report *r)
{
    switch (r->info->file_kind) {
    case ATSI_FILE_MODEL:
        return "model";
    case ATSI_FILE_VOCAB:
        return "vocabulary (tokenizer only)";
    case ATSI_FILE_MMPROJ:
        return "multimodal projector (mmproj)";
    case ATSI_FILE_ADAPTER:
        return text_is(r, "adapter.type", "lora") ? "adapter (LoRA)" : "adapter";
    default:
        return text_is(r, "general.type", "imatrix") ? "importance matrix (imatrix)" : "other";
    }
}

/* Recipes of general.file_type; the truth is the type of each tensor. */
static const char *quantization_of(const struct inspect_report *r)
{
    /* clang-format off */
    static const char *const names[] = {
        [0] = "F32", [1] = "F16", [2] = "Q4_0", [3] = "Q4_1", [7] = "Q8_0", [8] = "Q5_0",
        [9] = "Q5_1", [10] = "Q2_K", [11] = "Q3_K_S", [12] = "Q3_K_M", [13] = "Q3_K_L",
        [14] = "Q4_K_S", [15] = "Q4_K_M", [16] = "Q5_K_S", [17] = "Q5_K_M", [18] = "Q6_K",
        [19] = "IQ2_XXS", [20] = "IQ2_XS", [21] = "Q2_K_S", [22] = "IQ3_XS", [23] = "IQ3_XXS",
        [24] = "IQ1_S", [25] = "IQ4_NL", [26] = "IQ3_S", [27] = "IQ3_M", [28] = "IQ2_S",
        [29] = "IQ2_M", [30] = "IQ4_XS", [31] = "IQ1_M", [32] = "BF16", [36] = "TQ1_0",
        [37] = "TQ2_0", [38] = "MXFP4 MoE", [39] = "NVFP4", [40] = "Q1_0", [41] = "Q2_0",
    };
    /* clang-format on */
    struct atsi_meta v;
    int64_t id;
    if (!inspect_meta(r, "general.file_type", &v) || !inspect_integer(&v, &id))
        return "";
    if (id >= 1024) /* marks a guess of the writer */
        id -= 1024;
    if (id < 0 || id >= (int64_t)(sizeof names / sizeof names[0]) || names[id] == NULL)
        return "";
    return names[id];
}

/* ---------------------------------------------------------------- tensors */
uint64_t inspect_tensor_elems(const struct atsi_tensor *t)
{
    return t->ne[0] * t->ne[1] * t->ne[2] * t->ne[3]; /* checked by the loader: below 2^63 */
}

uint64_t inspect_tensor_bytes(const struct atsi_tensor *t)
{
    return t->row_bytes * t->ne[1] * t->ne[2] * t->ne[3];
}

static bool ends_with(const char *s, const char *end)
{
    size_t n = strlen(s), m = strlen(end);
    return n >= m && strcmp(s + n - m, end) == 0;
}

static enum inspect_role role_of(const char *name)
{
    if (strncmp(name, "token_embd.", 11) == 0)
        return INSPECT_EMBEDDING;
    if (strncmp(name, "output.", 7) == 0)
        return INSPECT_HEAD;
    if (ends_with(name, "_norm.weight"))
        return INSPECT_NORM;
    if (strstr(name, "_exps.") != NULL)
        return INSPECT_EXPERTS;
    if (strstr(name, ".ffn_gate_inp") != NULL)
        return INSPECT_ROUTER;
    if (strstr(name, ".ffn_") != NULL)
        return INSPECT_FFN;
    if (strstr(name, ".attn_") != NULL || strstr(name, ".ssm_") != NULL)
        return INSPECT_ATTENTION;
    return INSPECT_OTHER;
}

static void add(struct inspect_tally *t, const struct atsi_tensor *x)
{
    t->n_tensors++;
    t->n_elems += inspect_tensor_elems(x);
    t->n_bytes += inspect_tensor_bytes(x);
}

static struct inspect_tally *type_slot(struct inspect_report *r, const char *name)
{
    uint32_t i;
    for (i = 0; i < r->n_types; i++)
        if (strcmp(r->types[i].name, name) == 0)
            return &r->types[i];
    if (i == INSPECT_MAX_TYPES) {
        r->types[i - 1].name = "others";
        return &r->types[i - 1];
    }
    r->n_types++;
    r->types[i].name = name;
    return &r->types[i];
}

static int by_bytes(const void *a, const void *b)
{
    const struct inspect_tally *x = a, *y = b;
    if (x->n_bytes != y->n_bytes)
        return x->n_bytes > y->n_bytes ? -1 : 1;
    return (x->n_elems < y->n_elems) - (x->n_elems > y->n_elems);
}

/* A token passes expert_used_count of expert_count experts. */
static uint64_t count_active(const struct inspect_report *r)
{
    struct atsi_meta total, used;
    int64_t n, k;
    uint64_t experts = r->roles[INSPECT_EXPERTS].n_elems;
    if (!inspect_meta(r, ".expert_count", &total) || !inspect_integer(&total, &n) ||
        !inspect_meta(r, ".expert_used_count", &used) || !inspect_integer(&used, &k) || n <= 0 ||
        k < 0 || k > n)
        return r->n_params;
    return r->n_params - experts + experts / (uint64_t)n * (uint64_t)k;
}

static void tally(struct inspect_report *r)
{
    static const char *const role_names[INSPECT_N_ROLES] = {
        [INSPECT_EMBEDDING] = "embedding", [INSPECT_ATTENTION] = "attention",
        [INSPECT_FFN] = "feed-forward",    [INSPECT_EXPERTS] = "experts",
        [INSPECT_ROUTER] = "router",       [INSPECT_NORM] = "norms",
        [INSPECT_HEAD] = "output head",    [INSPECT_OTHER] = "other",
    };
    for (uint32_t i = 0; i < INSPECT_N_ROLES; i++)
        r->roles[i].name = role_names[i];
    for (uint32_t i = 0; i < r->info->n_tensors; i++) {
        const struct atsi_tensor *t = r->info->tensors[i];
        add(type_slot(r, r->info->type_names[i]), t);
        add(&r->roles[role_of(t->name)], t);
        r->n_params += inspect_tensor_elems(t);
        r->n_bytes += inspect_tensor_bytes(t);
        r->n_unsized += t->row_bytes == 0 && t->ne[0] != 0 ? 1 : 0;
    }
    qsort(r->types, r->n_types, sizeof r->types[0], by_bytes);
    r->n_active = count_active(r);
}

/* ---------------------------------------------------------------- memory */
/* Padding to whole lines is the same in both plans, so that their difference is exact. */
#define MORE_TOKENS 4096u

static void plan(struct inspect_report *r, struct atsi_model *model)
{
    struct atsi_session_params p = ATSI_SESSION_PARAMS_INIT;
    struct atsi_session_info more = {.struct_size = sizeof more};
    r->plan.struct_size = sizeof r->plan;
    r->plan_err.struct_size = sizeof r->plan_err;
    r->plan_status = atsi_session_plan(model, &p, &r->plan, &r->plan_err);
    if (r->plan_status != ATSI_OK)
        return;
    p.n_ctx = r->plan.n_ctx + MORE_TOKENS; /* a context that is too long has no next token */
    if (atsi_session_plan(model, &p, &more, NULL) == ATSI_OK && more.kv_bytes > r->plan.kv_bytes)
        r->kv_per_token = (more.kv_bytes - r->plan.kv_bytes) / MORE_TOKENS;
}

static const char *type_name(uint32_t type)
{
    const struct atsi_type_info *info = atsi_type_info(type);
    return info != NULL ? info->name : "?";
}

const char *inspect_kv_type(const struct inspect_report *r, char buf[48])
{
    const char *k = type_name(r->plan.type_k), *v = type_name(r->plan.type_v);
    if (r->plan.type_k == r->plan.type_v)
        (void)snprintf(buf, 48, "%s", k);
    else
        (void)snprintf(buf, 48, "%s keys, %s values", k, v);
    return buf;
}

/* ---------------------------------------------------------------- command */
static int report(struct atsi_model *model, const char *path)
{
    struct inspect_report r = {.model = model,
                               .info = atsi_model_info(model),
                               .path = path,
                               .show_meta = show_meta,
                               .show_tensors = show_tensors};
    r.kind = kind_of(&r);
    r.quantization = quantization_of(&r);
    tally(&r);
    if (r.info->file_kind == ATSI_FILE_MODEL)
        plan(&r, model);
    if (!as_json)
        inspect_print_text(&r);
    else if (!inspect_print_json(&r))
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    return cli_finish_stdout(CLI_OK);
}

static int run(int argc, char **argv)
{
    const struct atsi_model_params params = {.struct_size = sizeof params,
                                             .no_weights = ATSI_PLAN_ONLY};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_runtime *rt = NULL;
    struct atsi_model *model = NULL;
    const char *path;
    int n_pos = 0, code = cli_parse(&cli_cmd_inspect, options, argc, argv, &n_pos), st;
    if (code >= 0)
        return code;
    if (n_pos > 1)
        return cli_fail(CLI_USAGE, "inspect takes one file, but %d were named", n_pos);
    code = cli_runtime(&rt);
    if (code != CLI_OK)
        return code;
    path = n_pos == 1 ? cli_find_model(argv[1]) : cli_model_path(rt);
    code = CLI_USAGE;
    if (path != NULL) {
        st = atsi_model_open(rt, path, &params, &model, &err);
        code = st == ATSI_OK ? report(model, path) : cli_fail_status(st, &err);
    }
    atsi_model_close(model);
    atsi_runtime_close(rt);
    return code;
}

const struct cli_command cli_cmd_inspect = {
    .name = "inspect",
    .summary = "show what a model file is and what it holds",
    .usage = "atsinfer inspect [MODEL] [--json] [--meta] [--tensors]",
    .run = run,
};
