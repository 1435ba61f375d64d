/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes chat templates: the input is a template, and behind its first NUL byte, where there is
 * one, JSON that stands for the conversation.  A template that opens is rendered twice: both must
 * give the same. */
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include "text/chat_template.h"

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

static const char conversation[] =
    "[{\"role\": \"system\", \"content\": \" Be brief. \"},"
    " {\"role\": \"user\", \"content\": [{\"type\": \"text\", \"text\": \"na\\u00efve \\u65e5\"}]},"
    " {\"role\": \"assistant\", \"content\": null, \"tool_calls\": [{\"id\": 1, \"function\":"
    "  {\"name\": \"f\", \"arguments\": {\"x\": 1.5, \"y\": [true, \"<a>\"]}}}]},"
    " {\"role\": \"user\", \"content\": \"\\u03a3\\u03a3 ok\"}]";

static void render(const struct atsi_chat_template *t, const struct atsi_chat_input *in)
{
    struct atsi_err err[2] = {ATSI_ERR_INIT, ATSI_ERR_INIT};
    struct atsi_chat_text text[2] = {{.struct_size = sizeof text[0]},
                                     {.struct_size = sizeof text[1]}};
    int rc[2];
    for (int i = 0; i < 2; i++)
        rc[i] = atsi_chat_template_render(t, in, &text[i], &err[i]);
    if (rc[0] != rc[1] || text[0].len != text[1].len || text[0].raised != text[1].raised ||
        (text[0].len > 0 && memcmp(text[0].text, text[1].text, text[0].len) != 0) ||
        (rc[0] != ATSI_OK && (text[0].text != NULL || strncmp(err[0].msg, "line ", 5) != 0)))
        abort();
    free(text[0].text);
    free(text[1].text);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    const char *source = (const char *)data, *nul = size > 0 ? memchr(source, '\0', size) : NULL;
    size_t len = nul != NULL ? (size_t)(nul - source) : size;
    struct atsi_chat_input in = {.struct_size = sizeof in, .add_generation_prompt = true};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_chat_template *t = NULL;
    json_t *given = NULL, *messages;
    if (nul != NULL)
        given = json_loadb(nul + 1, size - len - 1, JSON_ALLOW_NUL, NULL);
    messages = json_is_array(given) ? json_incref(given) : json_loads(conversation, 0, NULL);
    in.messages = messages;
    in.tools = messages;
    in.now.tm_year = 125;
    in.now.tm_mon = 6;
    in.now.tm_mday = 3;
    if (atsi_chat_template_open(source, len, &t, &err) == ATSI_OK)
        render(t, &in);
    else if (strncmp(err.msg, "line ", 5) != 0 && strstr(err.msg, "bytes") == NULL)
        abort();
    atsi_chat_template_close(t);
    json_decref(messages);
    json_decref(given);
    return 0;
}
