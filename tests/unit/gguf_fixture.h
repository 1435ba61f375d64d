/* SPDX-License-Identifier: Apache-2.0
 *
 * What the GGUF tests share: a temporary folder, a host that records log lines, the loader through
 * its table of operations, one small valid model, and a stand-in for the graph builders. */
#ifndef GGUF_FIXTURE_H
#define GGUF_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include <cmocka.h>

#include "atsinfer/loader.h"
#include "atsinfer/plugin.h"
#include "gguf_writer.h"

extern const struct atsi_loader_ops *fx_ops;
extern struct atsi_host fx_host;
extern char fx_log[4096]; /* what was logged, one line after the other */

/* How often the stand-in built and freed a graph. */
extern int fx_graphs_built, fx_graphs_freed;

/* Group set-up and tear-down: the folder comes and goes with everything in it. */
int fx_setup(void **state);
int fx_teardown(void **state);
/* Path of a file in the folder.  One of eight buffers, used in turn. */
const char *fx_path(const char *name);

/* Opens through the table; the words of a failure are in fx_err.msg. */
extern struct atsi_err fx_err;
int fx_open(const char *path, uint32_t mode, bool no_weights, struct atsi_loaded **out);

/* A llama file of three tensors, 13 metadata entries of all value types, two layers:
 *   token_embd.weight F32 {8, 4} at 0, blk.0.attn_q.weight Q8_0 {32, 2} at 128,
 *   output_norm.weight F16 {5} at 224 */
void fx_model(struct gw *w, uint32_t version);
#define FX_N_KV 21u
#define FX_N_TENSORS 3u
/* Bytes up to the end of the last tensor, without trailing padding. */
size_t fx_model_end(const struct gw *w);

/* Asserts that the file is refused with `status` and a message that holds `needle` and the name of
 * the file, in every mode. */
void fx_refused(const char *path, int status, const char *needle);

#endif
