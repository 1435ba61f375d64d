/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer plan --svg`: a picture of where things live.  Layers are rows, their items columns; one
 * colour per residency and promotion.  Plain XML without script. */
#include "cli/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELL_W = 64, CELL_H = 14, LEFT = 64, TOP = 176, N_KINDS = 5, KIND_RESIDENT = 4 };

/* Index: promoted in prefill + 2 * promoted in decode, or resident. */
static const struct {
    const char *colour, *words;
} kinds[N_KINDS] = {{"#c9ced6", "host"},
                    {"#f0b45a", "host, promoted in prefill"},
                    {"#d9663f", "host, promoted in decode"},
                    {"#9b59b6", "host, promoted in both phases"},
                    {"#3f9b68", "resident on the GPU"}};

struct columns {
    char (*name)[64];
    uint32_t n;
};

static uint32_t kind_of(const struct atsi_plan_item *it)
{
    return it->device != 0 ? KIND_RESIDENT : it->promoted[0] + 2 * it->promoted[1];
}

/* Text of an XML element: markup is escaped; what is no printable ASCII may be no valid UTF-8. */
static void put_text(FILE *f, const char *s)
{
    for (; *s != '\0'; s++) {
        unsigned char c = (unsigned char)*s;
        if (c == '&')
            (void)fputs("&amp;", f);
        else if (c == '<')
            (void)fputs("&lt;", f);
        else if (c == '>')
            (void)fputs("&gt;", f);
        else if (c == '"')
            (void)fputs("&quot;", f);
        else
            (void)fputc(c >= 32 && c < 127 ? c : '?', f);
    }
}

static uint32_t column_of(const struct columns *c, const char *name)
{
    uint32_t k = 0;
    while (k < c->n && strcmp(c->name[k], name) != 0)
        k++;
    return k;
}

/* Items of one name share a column; columns come in the order of first use. */
static bool find_columns(const struct plan_show *v, struct columns *c)
{
    char name[64];
    c->n = 0;
    c->name = calloc((size_t)v->sum->n_items + 1, sizeof *c->name);
    if (c->name == NULL)
        return false;
    for (uint32_t i = 0; i < v->sum->n_items; i++) {
        plan_short_name(atsi_plan_item(v->report, i), name);
        if (column_of(c, name) == c->n)
            (void)snprintf(c->name[c->n++], sizeof *c->name, "%s", name);
    }
    return true;
}

static void put_head(FILE *f, const struct plan_show *v, uint32_t width, uint32_t height)
{
    const struct atsi_plan_summary *s = v->sum;
    (void)fprintf(
        f,
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<svg "
        "xmlns=\"http://www.w3.org/2000/svg\" width=\"%u\" height=\"%u\" viewBox=\"0 0 %u "
        "%u\" font-family=\"sans-serif\" font-size=\"11\">\n<title>",
        width, height, width, height);
    put_text(f, s->model);
    (void)fputs(" on ", f);
    put_text(f, s->machine);
    (void)fprintf(f,
                  "</title>\n<rect width=\"%u\" height=\"%u\" fill=\"#ffffff\"/>\n"
                  "<text x=\"8\" y=\"20\" font-size=\"15\">",
                  width, height);
    put_text(f, s->model);
    (void)fputs(" on ", f);
    put_text(f, s->machine);
    (void)fputs(", policy ", f);
    put_text(f, s->policy);
    (void)fprintf(
        f,
        "</text>\n<text x=\"8\" y=\"38\">modelled, not measured: TTFT %.3f s for %u tokens, "
        "TPOT %.3f ms; GPU budget %.0f MiB</text>\n",
        (double)s->ttft_ns / 1e9, s->prompt, plan_ms(s->tpot_ns), plan_mib(s->memory.vram));
}

static void put_legend(FILE *f)
{
    for (uint32_t k = 0; k < N_KINDS; k++) {
        uint32_t y = 48 + 15 * k;
        (void)fprintf(f,
                      "<rect x=\"8\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                      "<text x=\"26\" y=\"%u\">",
                      y, kinds[k].colour, y + 10);
        put_text(f, kinds[k].words);
        (void)fputs("</text>\n", f);
    }
}

static void put_columns(FILE *f, const struct columns *c)
{
    for (uint32_t k = 0; k < c->n; k++) {
        uint32_t x = LEFT + k * CELL_W + 6;
        (void)fprintf(f, "<text x=\"%u\" y=\"%d\" transform=\"rotate(-20 %u %d)\">", x, TOP - 6, x,
                      TOP - 6);
        put_text(f, c->name[k]);
        (void)fputs("</text>\n", f);
    }
}

static void put_cell(FILE *f, const struct atsi_plan_item *it, uint32_t column, uint32_t row)
{
    (void)fprintf(f, "<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>",
                  LEFT + column * CELL_W, TOP + row * CELL_H, CELL_W - 2, CELL_H - 2,
                  kinds[kind_of(it)].colour);
    put_text(f, it->name);
    (void)fprintf(f, ", %.2f MiB: ", plan_mib(it->bytes));
    put_text(f, plan_decision(it));
    (void)fputs(" (", f);
    put_text(f, plan_reason(it->reason));
    (void)fprintf(f,
                  "); decode: CPU %.1f us, GPU %.1f us; prefill: CPU %.2f ms, GPU %.2f "
                  "ms</title></rect>\n",
                  (double)it->cpu_ns[1] / 1e3, (double)it->gpu_ns[1] / 1e3, plan_ms(it->cpu_ns[0]),
                  plan_ms(it->gpu_ns[0]));
}

static void put_row(FILE *f, const struct plan_show *v, const struct columns *c, uint32_t k)
{
    const struct plan_row *row = &v->rows[k];
    int32_t layer = atsi_plan_item(v->report, row->first)->layer;
    char name[64];
    if (layer >= 0)
        (void)fprintf(f, "<text x=\"8\" y=\"%u\">layer %d</text>\n", TOP + k * CELL_H + 10, layer);
    for (uint32_t i = row->first; i < row->first + row->n; i++) {
        plan_short_name(atsi_plan_item(v->report, i), name);
        put_cell(f, atsi_plan_item(v->report, i), column_of(c, name), k);
    }
}

static void put_picture(FILE *f, const struct plan_show *v, const struct columns *c)
{
    uint32_t width = LEFT + c->n * CELL_W + 80, height = TOP + v->n_rows * CELL_H + 12;
    put_head(f, v, width > 620 ? width : 620, height);
    put_legend(f);
    put_columns(f, c);
    for (uint32_t k = 0; k < v->n_rows; k++)
        put_row(f, v, c, k);
    (void)fputs("</svg>\n", f);
}

int plan_write_svg(const struct plan_show *v, const char *path)
{
    struct columns c;
    FILE *f;
    bool ok;
    if (!find_columns(v, &c))
        return cli_fail(CLI_RUN_ERROR, "out of memory");
    f = fopen(path, "we");
    if (f == NULL) {
        free(c.name);
        return cli_fail(CLI_RUN_ERROR, "%s: cannot write the picture: %s", path, strerror(errno));
    }
    put_picture(f, v, &c);
    ok = ferror(f) == 0;
    ok = fclose(f) == 0 && ok;
    free(c.name);
    return ok ? CLI_OK
              : cli_fail(CLI_RUN_ERROR, "%s: cannot write the picture: %s", path, strerror(errno));
}
