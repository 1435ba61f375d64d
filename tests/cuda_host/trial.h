/* SPDX-License-Identifier: Apache-2.0
 *
 * What the tests of the simulated device share.
 */
#ifndef CH_TRIAL_H
#define CH_TRIAL_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>

#include <cmocka.h>

#include <cuda_runtime_api.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/trial_kernels.h"

#define OK(call) assert_string_equal(cudaGetErrorName(call), "cudaSuccess")
#define FAILS(call, error) assert_string_equal(cudaGetErrorName(call), #error)

/* Two streams, and settings as at the start; quiet, and nothing is left at the end. */
struct trial {
    const struct cuda_host_control *control;
    cudaStream_t a, b;
};
int trial_setup(void **state);
int trial_teardown(void **state);

/* Device memory with `n` floats of host memory in it, or nothing (NULL). */
float *trial_device(const float *values, size_t n);
void trial_fetch(void *host, const void *device, size_t bytes);
/* Pinned host memory, values 0, 1, 2, ... */
float *trial_pinned(size_t n);

/* Reports of the kind since the last call: at least one, which holds the words. */
void trial_reported(struct trial *t, enum cuda_host_report kind, const char *words);
void trial_nothing_reported(struct trial *t);

/* Runs `name` of victim.c: its exit status (or 256 + signal) and what it says to stderr. */
int trial_victim(const char *name, char *text, size_t size);

/* How it is built: AddressSanitizer ends a process where the device goes on. */
extern const int trial_asan, trial_tsan;

#endif
