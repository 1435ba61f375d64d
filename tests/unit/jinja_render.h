/* SPDX-License-Identifier: Apache-2.0
 * Rendering small templates in tests. */
#ifndef ATSI_TEST_JINJA_RENDER_H
#define ATSI_TEST_JINJA_RENDER_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

struct jinja_row {
    const char *source, *text;
};

/* Renders each row with a fixed set of variables (s, u, n, f, l, ls, d, html, msgs, none_; see
 * jinja_render.c) and checks the text. */
void jinja_rows(const struct jinja_row *rows, size_t n);
#define JINJA_ROWS(rows) jinja_rows(rows, sizeof(rows) / sizeof(rows)[0])

/* The template fails to open or to render, with this status, and the message contains `words`. */
void jinja_fails(const char *source, int status, const char *words);
/* The template renders to this text. */
void jinja_gives(const char *source, const char *text);

#endif
