/* SPDX-License-Identifier: Apache-2.0
 * The table of `atsinfer kernels` as JSON. */
#include "cli/kernels_table.h"

#include "cli/json.h"

static json_t *row_json(const struct kernels_table *t, const struct kernels_row *r, bool *ok)
{
    json_t *o = json_object();
    cli_json_set(o, "backend", cli_json_text(r->backend), ok);
    cli_json_set(o, "op", cli_json_text(r->op), ok);
    cli_json_set(o, "type", cli_json_text(r->type), ok);
    cli_json_set(o, "layout", cli_json_text(r->layout), ok);
    cli_json_set(o, "shape", cli_json_text(r->shape), ok);
    cli_json_set(o, "memory", cli_json_text(r->memory), ok);
    cli_json_set(o, "unit", cli_json_text(r->unit), ok);
    cli_json_set(o, "speed", json_real(r->speed), ok);
    cli_json_set(o, "of_limit", json_real(r->of_limit), ok);
    cli_json_set(o, "of_ref", json_real(r->of_ref), ok);
    cli_json_set(o, "spread", json_real(r->spread), ok);
    cli_json_set(o, "ns", json_real(r->ns), ok);
    if (t->compared) {
        cli_json_set(o, "was", json_real(r->was), ok);
        cli_json_set(o, "slower", json_boolean(r->slower), ok);
    }
    return o;
}

json_t *kernels_table_json(const struct kernels_table *t)
{
    json_t *o = json_object(), *rows = json_array();
    bool ok = true;
    cli_json_set(o, "atsinfer_kernels", json_integer(1), &ok);
    cli_json_set(o, "cpu", cli_json_text(t->cpu), &ok);
    cli_json_set(o, "threads", json_integer(t->n_threads), &ok);
    cli_json_set(o, "read_gbps", json_real(t->read_gbps), &ok);
    cli_json_set(o, "int8_gmacs", json_real(t->int8_gmacs), &ok);
    cli_json_set(o, "fma_gmacs", json_real(t->fma_gmacs), &ok);
    for (uint32_t i = 0; i < t->n; i++)
        cli_json_append(rows, row_json(t, &t->rows[i], &ok), &ok);
    cli_json_set(o, "rows", rows, &ok);
    if (ok)
        return o;
    json_decref(o);
    return NULL;
}

int kernels_table_print_json(const struct kernels_table *t)
{
    json_t *o = kernels_table_json(t);
    return cli_json_print(o, o != NULL, CLI_OK);
}
