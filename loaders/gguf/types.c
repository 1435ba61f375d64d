/* SPDX-License-Identifier: Apache-2.0
 *
 * Names and block sizes of tensor types, so that a refusal can name what the file holds and
 * `inspect` can size it.  Supported types come from atsinfer/quant.h; the table here has the rest:
 * current types without kernels, retired ids, and ids of known forks. */
#include "types.h"

#include <inttypes.h>
#include <stdio.h>

#include "atsinfer/quant.h"

static const char note_retired[] = "retired from the format; convert the model again";
static const char note_activation[] = "it is for activations, not for weights";
static const char note_fork[] = "a private type of the ik_llama.cpp fork";

/* clang-format off */
static const struct gguf_type others[] = {
    {4, "Q4_2", 0, 0, note_retired},
    {5, "Q4_3", 0, 0, note_retired},
    {9, "Q8_1", 32, 36, note_activation},
    {15, "Q8_K", 256, 292, note_activation},
    {16, "IQ2_XXS", 256, 66, NULL},
    {17, "IQ2_XS", 256, 74, NULL},
    {18, "IQ3_XXS", 256, 98, NULL},
    {19, "IQ1_S", 256, 50, NULL},
    {21, "IQ3_S", 256, 110, NULL},
    {22, "IQ2_S", 256, 82, NULL},
    {24, "I8", 1, 1, NULL},
    {25, "I16", 1, 2, NULL},
    {27, "I64", 1, 8, NULL},
    {28, "F64", 1, 8, NULL},
    {29, "IQ1_M", 256, 56, NULL},
    {31, "Q4_0_4_4", 0, 0, note_retired},
    {32, "Q4_0_4_8", 0, 0, note_retired},
    {33, "Q4_0_8_8", 0, 0, note_retired},
    {34, "TQ1_0", 256, 54, NULL},
    {35, "TQ2_0", 256, 66, NULL},
    {36, "IQ4_NL_4_4", 0, 0, "retired from the format, or I2_S of a fork; convert the model again"},
    {37, "IQ4_NL_4_8", 0, 0, note_retired},
    {38, "IQ4_NL_8_8", 0, 0, note_retired},
    {40, "NVFP4", 64, 36, NULL},
    {41, "Q1_0", 128, 18, NULL},
    {42, "Q2_0", 64, 18, NULL},
    {139, "IQ4_K", 0, 0, note_fork},
    {144, "IQ4_KS", 0, 0, note_fork},
};
/* clang-format on */

const struct gguf_type *gguf_type_find(uint32_t id)
{
    for (size_t i = 0; i < sizeof others / sizeof others[0]; i++)
        if (others[i].id == id)
            return &others[i];
    return NULL;
}

const char *gguf_type_name(uint32_t id, char buf[24])
{
    const struct atsi_type_info *ti = atsi_type_info(id);
    const struct gguf_type *t = gguf_type_find(id);
    if (ti != NULL)
        return ti->name;
    if (t != NULL)
        return t->name;
    (void)snprintf(buf, 24, "type %" PRIu32, id);
    return buf;
}

/* Ids that the ik_llama.cpp fork uses for itself. */
static int is_fork_id(uint32_t id)
{
    return (id >= 97 && id <= 99) || (id >= 133 && id <= 158) || (id >= 202 && id <= 399);
}

static const char *note_of(uint32_t id)
{
    const struct gguf_type *t = gguf_type_find(id);
    if (t != NULL)
        return t->note;
    return is_fork_id(id) ? note_fork : "unknown to this version";
}

int gguf_type_refuse(uint32_t id, struct atsi_err *err)
{
    char name[24], list[256];
    const char *note = note_of(id);
    size_t at = 0;
    list[0] = '\0';
    for (uint32_t i = 0; i < ATSI_TYPE_COUNT; i++) {
        const struct atsi_type_info *ti = atsi_type_info(i);
        int n;
        if (ti == NULL)
            continue;
        n = snprintf(list + at, sizeof list - at, " %s", ti->name);
        if (n < 0 || (size_t)n >= sizeof list - at)
            break;
        at += (size_t)n;
    }
    return atsi_fail(err, ATSI_ENOTSUP, "%s%s is not supported%s%s%s; supported are%s",
                     gguf_type_find(id) != NULL ? "type " : "", gguf_type_name(id, name),
                     note != NULL ? " (" : "", note != NULL ? note : "", note != NULL ? ")" : "",
                     list);
}
