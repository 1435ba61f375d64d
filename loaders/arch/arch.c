/* SPDX-License-Identifier: Apache-2.0
 *
 * The table of architectures: general.architecture to the function that builds its graph.
 */
#include "loaders/arch/arch.h"

#include "loaders/arch/list.h"

#include <string.h>

static const struct {
    const char *name;
    int (*build)(struct atsi_loaded *m, struct atsi_err *err);
} archs[] = {
    {"llama", arch_llama},         {"qwen2", arch_qwen2},   {"qwen3", arch_qwen3},
    {"qwen3moe", arch_qwen3},      {"glm4", arch_glm4},     {"gpt-oss", arch_gpt_oss},
    {"qwen3next", arch_qwen3next}, {"qwen35", arch_qwen35}, {"qwen35moe", arch_qwen35},
};
enum { N_ARCHS = sizeof archs / sizeof archs[0] };

static int unknown(const char *name, struct atsi_err *err)
{
    char known[128] = "";
    size_t at = 0;
    for (size_t i = 0; i < N_ARCHS; i++)
        at += (size_t)snprintf(known + at, sizeof known - at, "%s%s", i > 0 ? ", " : "",
                               archs[i].name);
    return atsi_fail(err, ATSI_ENOTSUP, "architecture \"%.40s\" is not supported; supported are %s",
                     name, known);
}

int arch_build_graph(struct atsi_loaded *m, struct atsi_err *err)
{
    const char *name = gguf_arch(m);
    for (size_t i = 0; i < N_ARCHS; i++)
        if (strcmp(archs[i].name, name) == 0)
            return archs[i].build(m, err);
    return unknown(name, err);
}
