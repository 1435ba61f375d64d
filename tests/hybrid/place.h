/* SPDX-License-Identifier: Apache-2.0
 *
 * A session with all that it stands on, for tests of what the accelerator's logits cost: settings
 * under which they are picked there, and a model whose vocabulary is worth several blocks. */
#ifndef HYBRID_PLACE_H
#define HYBRID_PLACE_H

#include "tests/hybrid/hybrid_run.h"

enum { PLACE_LONG = 8500 }; /* words of place_long_model() */

/* All weights on the accelerator, NULL-terminated: it picks logits, or copies the row. */
extern const char *const place_on[], *const place_off[];

struct place {
    struct atsi_runtime *rt;
    struct atsi_model *m;
    struct atsi_session *s;
};

/* settings NULL: without accelerator. */
struct place place_open(const char *const *settings, const char *path, uint32_t n_ctx,
                        uint32_t chunk);
void place_close(struct place *p);

/* [borrowed until the next hr_model()] */
const char *place_long_model(void);
/* Bytes of logits that came to the host, ever. */
uint64_t place_result_bytes(const struct place *p);

#endif
