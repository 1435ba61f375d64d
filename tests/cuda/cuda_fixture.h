/* SPDX-License-Identifier: Apache-2.0
 *
 * The plugin cuda_host (plugins/cuda on an emulated device) through its interface alone, as the
 * core uses it: loaded from its file, with a host table of the test's own.
 */
#ifndef CUDA_FIXTURE_H
#define CUDA_FIXTURE_H

#include <stdbool.h>

#include "atsinfer/plugin.h"
#include "tests/cuda_host/control.h"

struct gpu {
    const struct atsi_backend_ops *ops;
    const struct atsi_transfer_ops *link_ops;
    struct atsi_backend *be;
    struct atsi_queue *queue;
    struct atsi_transfer *link;
    struct atsi_event *done;
    struct atsi_err err;
};

enum { GPU_ENGINE, GPU_KERNEL }; /* channels */

extern const struct cuda_host_control *gpu_control;
extern struct atsi_host gpu_host;

/* Loads the plugin; once per process. */
const struct atsi_plugin *gpu_plugin(void);
const struct atsi_backend_ops *gpu_backend_ops(void);
const struct atsi_transfer_ops *gpu_transfer_ops(void);

/* cuda_host_control.fail(), whose name cmocka takes for a macro of its own. */
void gpu_fail(const char *name, uint64_t n, int error, int async);

/* A setting of the plugin for what is opened from now on; NULL: its default. */
void gpu_set(const char *key, const char *value);
/* Warnings and errors logged since the last call, and the last of them. */
uint32_t gpu_logged(const char **text);

/* cmocka set-up and tear-down: everything opened, the emulation as after loading; everything
 * closed, nothing left, nothing reported. */
int gpu_setup(void **state);
int gpu_teardown(void **state);

/* The parts of the above, for tests in which they may fail. */
int gpu_open(struct gpu *g);
void gpu_close(struct gpu *g);
/* Fails the test when the emulation still has something, or has something to report. */
void gpu_assert_clean(void);

/* Buffers and bytes; a failure fails the test. */
struct atsi_buf *gpu_alloc(struct gpu *g, enum atsi_mem mem, size_t bytes);
void gpu_put(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_get(struct gpu *g, void *dst, const void *src, size_t bytes);
void gpu_wait(struct gpu *g, struct atsi_event *ev);
int gpu_copyv(struct gpu *g, uint32_t channel, const struct atsi_range *ranges, uint32_t n,
              struct atsi_event *wait, struct atsi_event *signal);
int gpu_run(struct gpu *g, const struct atsi_op *op, uint64_t key, struct atsi_event *wait,
            struct atsi_event *signal);
size_t gpu_free_bytes(struct gpu *g);

/* y = a + b over [rows, width] f32 numbers on the device: tensors and operation. */
struct gpu_add {
    struct atsi_tensor a, b, y;
    struct atsi_op op;
};
void gpu_add_make(struct gpu_add *add, void *a, void *b, void *y, uint64_t width, uint32_t rows);

#define GPU_OK(g, call) assert_int_equal_text((call), ATSI_OK, (g)->err.msg)
void assert_int_equal_text(int got, int want, const char *text);

#endif
