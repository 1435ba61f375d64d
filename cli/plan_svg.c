/* SPDX-License-Identifier: Apache-2.0
 * `atsinfer plan --svg`: a picture of where things live.  Layers are rows, their items columns.
 * Green lives on the GPU, grey on the host; from amber to red the weight is streamed in more and
 * more of the request's rounds, a bar at the left says that prefill is among them.  Plain XML
 * without script. */
#include "cli/plan.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

enum { CELL_W = 64, CELL_H = 14, LEFT = 64, TOP = 176, COLOUR = 8 };

struct kind {
    int32_t device;
    uint32_t promoted[2]; /* in prefill, in decode */
    const char *words;
};
static const struct kind kinds[] = {{0, {0, 0}, "host"},
                                    {0, {1, 0}, "host, promoted in prefill"},
                                    {0, {0, 1}, "host, promoted in decode"},
                                    {0, {1, 1}, "host, promoted in both phases"},
                                    {1, {0, 0}, "resident on the GPU"}};
enum { N_KINDS = sizeof kinds / sizeof kinds[0] };

struct columns {
    char (*name)[64];
    uint32_t n;
};

/* Rounds of the request, and in how many of them the weight is streamed. */
static uint32_t rounds_of(const struct plan_show *v)
{
    uint32_t tokens = v->sum->prefill.tokens;
    return (tokens > 0 ? (v->sum->prompt + tokens - 1) / tokens : 0) + v->sum->generated;
}

static uint32_t streamed_in(const struct plan_show *v, const uint32_t promoted[2])
{
    uint32_t decode = v->sum->generated, prefill = rounds_of(v) - decode;
    return promoted[0] * prefill + promoted[1] * decode;
}

/* "#rrggbb" */
static void set_colour(const struct plan_show *v, int32_t device, const uint32_t promoted[2],
                       char out[COLOUR])
{
    static const double rare[3] = {0xf7, 0xd0, 0x7e}, always[3] = {0xb8, 0x32, 0x2a};
    uint32_t n = streamed_in(v, promoted), rounds = rounds_of(v);
    double share = rounds > 0 ? (double)n / rounds : 0;
    uint32_t rgb[3];
    for (int k = 0; k < 3; k++)
        rgb[k] = (uint32_t)(rare[k] + (always[k] - rare[k]) * share) & 0xffU;
    if (device != 0 || n == 0)
        (void)snprintf(out, COLOUR, "%s", device != 0 ? "#3f9b68" : "#c9ced6");
    else
        (void)snprintf(out, COLOUR, "#%02x%02x%02x", rgb[0], rgb[1], rgb[2]);
}

/* How often, for a legend or a title; nothing where nothing is streamed. */
static void put_often(FILE *f, const struct plan_show *v, const uint32_t promoted[2])
{
    if (streamed_in(v, promoted) > 0)
        (void)fprintf(f, ": %u of %u rounds", streamed_in(v, promoted), rounds_of(v));
}

static void put_bar(FILE *f, uint32_t x, uint32_t y, uint32_t height, uint32_t prefill)
{
    if (prefill)
        (void)fprintf(f, "<rect x=\"%u\" y=\"%u\" width=\"4\" height=\"%u\" fill=\"#5b2c83\"/>\n",
                      x, y, height);
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

static void put_legend(FILE *f, const struct plan_show *v)
{
    for (uint32_t k = 0; k < N_KINDS; k++) {
        uint32_t y = 48 + 15 * k;
        char colour[COLOUR];
        set_colour(v, kinds[k].device, kinds[k].promoted, colour);
        (void)fprintf(f,
                      "<rect x=\"8\" y=\"%u\" width=\"12\" height=\"12\" fill=\"%s\"/>"
                      "<text x=\"26\" y=\"%u\">",
                      y, colour, y + 10);
        put_text(f, kinds[k].words);
        put_often(f, v, kinds[k].promoted);
        (void)fputs("</text>\n", f);
        put_bar(f, 8, y, 12, kinds[k].promoted[0]);
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

static void put_cell(FILE *f, const struct plan_show *v, const struct atsi_plan_item *it,
                     uint32_t column, uint32_t row)
{
    uint32_t x = LEFT + column * CELL_W, y = TOP + row * CELL_H;
    char colour[COLOUR];
    set_colour(v, it->device, it->promoted, colour);
    (void)fprintf(f, "<rect x=\"%u\" y=\"%u\" width=\"%d\" height=\"%d\" fill=\"%s\"><title>", x, y,
                  CELL_W - 2, CELL_H - 2, colour);
    put_text(f, it->name);
    (void)fprintf(f, ", %.2f MiB: ", plan_mib(it->bytes));
    put_text(f, plan_decision(it));
    put_often(f, v, it->promoted);
    (void)fputs(" (", f);
    put_text(f, plan_reason(it->reason));
    (void)fprintf(f,
                  "); decode: CPU %.1f us, GPU %.1f us; prefill: CPU %.2f ms, GPU %.2f "
                  "ms</title></rect>\n",
                  (double)it->cpu_ns[1] / 1e3, (double)it->gpu_ns[1] / 1e3, plan_ms(it->cpu_ns[0]),
                  plan_ms(it->gpu_ns[0]));
    put_bar(f, x, y, CELL_H - 2, it->promoted[0]);
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
        put_cell(f, v, atsi_plan_item(v->report, i), column_of(c, name), k);
    }
}

static void put_picture(FILE *f, const struct plan_show *v, const struct columns *c)
{
    uint32_t width = LEFT + c->n * CELL_W + 80, height = TOP + v->n_rows * CELL_H + 12;
    put_head(f, v, width > 620 ? width : 620, height);
    put_legend(f, v);
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
