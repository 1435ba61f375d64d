/* SPDX-License-Identifier: Apache-2.0
 * Asking a backend what it finds and can do here, without running anything on it. */
#include "cli/plugins_backend.h"

#include <string.h>

/* Whole blocks of every type. */
#define WIDTH 256u

static struct atsi_tensor tensor(uint32_t type, uint32_t rows)
{
    return (struct atsi_tensor){.struct_size = sizeof(struct atsi_tensor),
                                .type = type,
                                .layout = ATSI_LAYOUT_ROWS,
                                .n_dims = 2,
                                .ne = {WIDTH, rows, 1, 1},
                                .row_bytes = atsi_row_bytes(type, WIDTH),
                                .name = "asked"};
}

/* Whether y[1, 256] = x[1, 256] * w{256, 256} is accepted for weights of this type. */
static bool multiplies(const struct atsi_backend_ops *ops, const struct atsi_backend *be,
                       uint32_t type)
{
    struct atsi_tensor w = tensor(type, WIDTH), x = tensor(ATSI_TYPE_F32, 1), y = x;
    struct atsi_op op = {.struct_size = sizeof op,
                         .kind = ATSI_OP_MATMUL,
                         .n_rows = 1,
                         .src = {&x},
                         .weight = {&w},
                         .dst = {&y}};
    return atsi_type_info(type) != NULL && ops->supports(be, &op) == 1;
}

static void ask_device(const struct atsi_runtime *rt, const struct atsi_backend_ops *ops,
                       struct plugins_backend *out)
{
    struct atsi_props props = {.struct_size = sizeof props};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_backend *be = NULL;
    int rc = ops->open(atsi_runtime_host(rt), 0, &be, &err);
    if (rc != ATSI_OK) {
        (void)snprintf(out->state, sizeof out->state, "cannot be opened: %s",
                       err.msg[0] != '\0' ? err.msg : atsi_strerror(rc));
        return;
    }
    if (ops->props(be, &props) == ATSI_OK)
        (void)snprintf(out->device, sizeof out->device, "%.63s%s%.127s", props.name,
                       props.detail[0] != '\0' ? ": " : "", props.detail);
    for (uint32_t type = 0; type < ATSI_TYPE_COUNT; type++)
        out->types[type] = multiplies(ops, be, type);
    ops->close(be);
}

void plugins_backend_ask(const struct atsi_runtime *rt, const struct atsi_component *c, bool open,
                         struct plugins_backend *out)
{
    const struct atsi_backend_ops *ops = c->ops;
    int n = ops->probe(atsi_runtime_host(rt));
    memset(out, 0, sizeof *out);
    if (n > 0)
        (void)snprintf(out->state, sizeof out->state, "usable");
    else
        (void)snprintf(out->state, sizeof out->state, "%s",
                       n == 0 ? "no device here" : atsi_strerror(n));
    if (n > 0 && open)
        ask_device(rt, ops, out);
}
