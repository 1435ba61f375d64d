/* SPDX-License-Identifier: Apache-2.0
 * Rendering small templates in tests. */
#include "jinja_render.h"

#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

static const char variables[] =
    "{\"s\": \"Hello World\", "
    "\"u\": \"naïve ß 日本\", "
    "\"n\": 7, "
    "\"f\": 2.5, "
    "\"none_\": null, "
    "\"l\": [3, 1, 2], "
    "\"ls\": [\"b\", \"A\", \"c\", \"a\"], "
    "\"d\": {\"b\": 2, \"A\": 1, \"c\": {\"x\": [1, 2]}}, "
    "\"html\": \"<a href=\\\"x\\\">\", "
    "\"msgs\": [{\"role\": \"system\", \"content\": \" sys \"}, {\"role\": \"user\", \"content\": "
    "\"hi\"}, {\"role\": \"assistant\", \"content\": null, \"n\": 5}, {\"role\": \"user\", "
    "\"content\": \"more\"}]}";

static int render(const char *source, char **text_out, struct atsi_err *err)
{
    struct atsi_chat_input in = {.struct_size = sizeof in};
    struct atsi_chat_text text = {.struct_size = sizeof text};
    struct atsi_chat_template *t = NULL;
    json_t *vars = json_loads(variables, 0, NULL);
    int rc = atsi_chat_template_open(source, strlen(source), &t, err);
    assert_non_null(vars);
    in.variables = vars;
    if (rc == ATSI_OK)
        rc = atsi_chat_template_render(t, &in, &text, err);
    else
        assert_null(t);
    assert_true(rc == ATSI_OK ? text.text != NULL && strlen(text.text) == text.len
                              : text.text == NULL);
    atsi_chat_template_close(t);
    json_decref(vars);
    *text_out = text.text;
    return rc;
}

void jinja_gives(const char *source, const char *text)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *got = NULL;
    int rc = render(source, &got, &err);
    if (rc != ATSI_OK)
        fail_msg("%s\n%s", source, err.msg);
    if (strcmp(got, text) != 0)
        fail_msg("template: %s\nexpected: %s\ngot:      %s", source, text, got);
    free(got);
}

void jinja_rows(const struct jinja_row *rows, size_t n)
{
    for (size_t i = 0; i < n; i++)
        jinja_gives(rows[i].source, rows[i].text);
}

void jinja_fails(const char *source, int status, const char *words)
{
    struct atsi_err err = ATSI_ERR_INIT;
    char *got = NULL;
    int rc = render(source, &got, &err);
    if (rc == ATSI_OK)
        fail_msg("template: %s\ngave: %s", source, got);
    if (rc != status || strstr(err.msg, words) == NULL)
        fail_msg("template: %s\nexpected: %d, ...%s...\ngot: %d, %s", source, status, words, rc,
                 err.msg);
}
