/* SPDX-License-Identifier: Apache-2.0
 *
 * JSON, as Python's json.dumps writes it.
 */
#include <math.h>

#include "text/jinja/compare.h"
#include "text/jinja/number.h"
#include "text/jinja/repr.h"
#include "text/jinja/ucs.h"

struct writer {
    struct atsi_jbuf b;
    const struct atsi_jjson *how;
    size_t level;
};

static void add_unit(struct atsi_jbuf *b, uint32_t unit)
{
    char text[8];
    (void)snprintf(text, sizeof text, "\\u%04x", (unsigned)unit & 0xFFFFu);
    atsi_jbuf_text(b, text);
}

static void escape_char(struct writer *w, uint32_t cp)
{
    static const char letters[] = "\bb\ff\nn\rr\tt\"\"\\\\";
    for (const char *l = letters; *l != '\0'; l += 2)
        if (cp == (unsigned char)l[0]) {
            atsi_jbuf_text(&w->b, "\\");
            atsi_jbuf_add(&w->b, l + 1, 1);
            return;
        }
    if (cp >= 0x10000) {
        add_unit(&w->b, 0xD800 + ((cp - 0x10000) >> 10));
        add_unit(&w->b, 0xDC00 + ((cp - 0x10000) & 0x3FF));
    } else {
        add_unit(&w->b, cp);
    }
}

static void write_str(struct writer *w, const struct atsi_jstr *s)
{
    size_t from = 0;
    if (!atsi_jr_work(w->b.r, s->n))
        w->b.bad = true;
    atsi_jbuf_text(&w->b, "\"");
    for (size_t at = 0; at < s->n && !w->b.bad;) {
        size_t here = at;
        uint32_t cp = atsi_ucs_next(s->p, s->n, &at);
        if (cp >= ' ' && cp != '"' && cp != '\\' && (cp < 0x7F || !w->how->ascii))
            continue;
        atsi_jbuf_add(&w->b, s->p + from, here - from);
        escape_char(w, cp);
        from = at;
    }
    atsi_jbuf_add(&w->b, s->p + from, s->n - from);
    atsi_jbuf_text(&w->b, "\"");
}

static void write_float(struct writer *w, double f)
{
    char text[ATSI_JFLOAT_SIZE];
    if (isnan(f) || isinf(f))
        atsi_jbuf_text(&w->b, isnan(f) ? "NaN" : f < 0 ? "-Infinity" : "Infinity");
    else
        atsi_jbuf_text(&w->b, atsi_jfloat_repr(f, text));
}

static void new_line(struct writer *w)
{
    if (w->how->indent == NULL)
        return;
    atsi_jbuf_text(&w->b, "\n");
    atsi_jbuf_fill(&w->b, w->how->indent->p, w->how->indent->n, w->level);
}

static void write_value(struct writer *w, struct atsi_jv v);

static void write_list(struct writer *w, const struct atsi_jlist *l)
{
    if (l->n == 0) {
        atsi_jbuf_text(&w->b, "[]");
        return;
    }
    atsi_jbuf_text(&w->b, "[");
    w->level++;
    for (size_t i = 0; i < l->n && !w->b.bad; i++) {
        if (i > 0)
            atsi_jbuf_str(&w->b, w->how->item_separator);
        new_line(w);
        write_value(w, l->v[i]);
    }
    w->level--;
    new_line(w);
    atsi_jbuf_text(&w->b, "]");
}

/* Keys that are no text are written as text. */
static void write_key(struct writer *w, struct atsi_jv key)
{
    if (key.type == ATSI_J_STR) {
        write_str(w, key.u.s);
    } else if (key.type == ATSI_J_NONE || atsi_jv_is_number(key)) {
        atsi_jbuf_text(&w->b, "\"");
        write_value(w, key);
        atsi_jbuf_text(&w->b, "\"");
    } else {
        (void)atsi_jr_error(w->b.r, "keys must be str, int, float, bool or None, not %s",
                            atsi_jv_type_name(key));
        w->b.bad = true;
    }
}

/* The entries, by key where that is asked for. */
static const struct atsi_jentry *entries(struct writer *w, const struct atsi_jdict *d)
{
    struct atsi_jr *r = w->b.r;
    struct atsi_jv *key, *place;
    struct atsi_jentry *sorted;
    if (!w->how->sort_keys || d->n < 2)
        return d->e;
    key = atsi_jr_array(r, d->n, sizeof *key);
    place = atsi_jr_array(r, d->n, sizeof *place);
    sorted = atsi_jr_array(r, d->n, sizeof *sorted);
    if (key == NULL || place == NULL || sorted == NULL)
        return NULL;
    for (size_t i = 0; i < d->n; i++) {
        key[i] = d->e[i].key;
        place[i] = atsi_jv_int((int64_t)i);
    }
    if (!atsi_jv_sort(r, place, key, d->n, false))
        return NULL;
    for (size_t i = 0; i < d->n; i++)
        sorted[i] = d->e[place[i].u.i];
    return sorted;
}

static void write_dict(struct writer *w, const struct atsi_jdict *d)
{
    const struct atsi_jentry *e = entries(w, d);
    if (d->n == 0) {
        atsi_jbuf_text(&w->b, "{}");
        return;
    }
    if (e == NULL) {
        w->b.bad = true;
        return;
    }
    atsi_jbuf_text(&w->b, "{");
    w->level++;
    for (size_t i = 0; i < d->n && !w->b.bad; i++) {
        if (i > 0)
            atsi_jbuf_str(&w->b, w->how->item_separator);
        new_line(w);
        write_key(w, e[i].key);
        atsi_jbuf_str(&w->b, w->how->key_separator);
        write_value(w, e[i].value);
    }
    w->level--;
    new_line(w);
    atsi_jbuf_text(&w->b, "}");
}

static void write_value(struct writer *w, struct atsi_jv v)
{
    if (!atsi_jr_enter(w->b.r) || !atsi_jr_step(w->b.r, 1)) {
        w->b.bad = true;
        w->b.r->depth--;
        return;
    }
    switch (v.type) {
    case ATSI_J_NONE:
        atsi_jbuf_text(&w->b, "null");
        break;
    case ATSI_J_BOOL:
        atsi_jbuf_text(&w->b, v.flag ? "true" : "false");
        break;
    case ATSI_J_INT:
        atsi_jbuf_int(&w->b, v.u.i);
        break;
    case ATSI_J_FLOAT:
        write_float(w, v.u.f);
        break;
    case ATSI_J_STR:
        write_str(w, v.u.s);
        break;
    case ATSI_J_LIST:
    case ATSI_J_TUPLE:
        write_list(w, v.u.list);
        break;
    case ATSI_J_DICT:
        write_dict(w, v.u.dict);
        break;
    default:
        (void)atsi_jr_error(w->b.r, "Object of type %s is not JSON serializable",
                            atsi_jv_type_name(v));
        w->b.bad = true;
    }
    w->b.r->depth--;
}

struct atsi_jv atsi_jv_to_json(struct atsi_jr *r, struct atsi_jv v, const struct atsi_jjson *how)
{
    struct writer w = {.b = atsi_jbuf_of(r), .how = how};
    write_value(&w, v);
    return atsi_jbuf_take(&w.b);
}
