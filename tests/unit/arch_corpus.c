/* SPDX-License-Identifier: Apache-2.0
 *
 * Writes one small model per architecture, "model_ARCH", to the folder named on the command line:
 * the seeds of tests/fuzz/corpus/gguf.  Built on request (`ninja arch_corpus`). */
#include <stdio.h>
#include <stdlib.h>

#include "tests/unit/arch_config.h"

/* Every kind of tensor, as few values as possible. */
static void shrink(struct am_config *c)
{
    c->n_layer = 2;
    c->n_embd = 8;
    c->n_head = 2;
    c->n_head_kv = 1;
    c->head_dim = 8;
    c->n_rot = c->n_rot != 0 ? 4 : 0;
    c->n_ff = c->n_ff != 0 ? 8 : 0;
    c->n_vocab = 12;
    if (c->n_expert != 0) {
        c->n_expert = 3;
        c->n_used = 2;
        c->n_ff_expert = c->n_ff_expert != 0 ? 8 : 0;
        c->n_ff_shared = c->n_ff_shared != 0 ? 8 : 0;
    }
    if (c->interval != 0) {
        c->nk = 1;
        c->nv = 2;
        c->state = 8;
    }
}

int main(int argc, char **argv)
{
    if (argc != 2) {
        (void)fprintf(stderr, "usage: arch_corpus FOLDER\n");
        return EXIT_FAILURE;
    }
    for (const char *const *name = am_tiny_names; *name != NULL; name++) {
        struct am_config c = am_tiny(*name);
        struct am m;
        char path[1024];
        shrink(&c);
        am_build(&m, &c, false);
        if (snprintf(path, sizeof path, "%s/model_%s", argv[1], *name) >= (int)sizeof path ||
            !am_save(&m, path)) {
            (void)fprintf(stderr, "arch_corpus: %s cannot be written\n", path);
            return EXIT_FAILURE;
        }
        am_free(&m);
    }
    return EXIT_SUCCESS;
}
