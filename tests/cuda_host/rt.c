/* SPDX-License-Identifier: Apache-2.0
 *
 * The lock, settings, the beginning and the end of every call, injected failures, reports.
 */
#include "tests/cuda_host/rt.h"

#include <ctype.h>
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <time.h>
#include <unistd.h>

#include "tests/cuda_host/exec.h"

struct ch_rt ch_rt = {.lock = PTHREAD_MUTEX_INITIALIZER, .progress = PTHREAD_COND_INITIALIZER};

static const struct {
    const char *name;
    int64_t usual, least, most;
} settings[CH_SETTINGS] = {
    [CH_DEVICES] = {"DEVICES", 1, 0, 1},
    [CH_DRIVER] = {"DRIVER", CUDART_VERSION, 0, INT32_MAX},
    [CH_SM] = {"SM", 80, 50, 999},
    [CH_SMS] = {"SMS", 4, 1, 1024},
    [CH_MEMORY] = {"MEMORY", 1 << 30, 0, INT64_MAX},
    [CH_GRANULE] = {"GRANULE", 2 << 20, 4096, 1 << 30},
    [CH_PINNED] = {"PINNED", -1, -1, INT64_MAX},
    [CH_WORKERS] = {"WORKERS", 2, 1, 8},
    [CH_DELAY] = {"DELAY", 0, 0, 10000000},
    [CH_SEED] = {"SEED", 1, 0, INT64_MAX},
    [CH_H2D] = {"H2D", 0, 0, INT64_MAX},
    [CH_D2H] = {"D2H", 0, 0, INT64_MAX},
    [CH_D2D] = {"D2D", 0, 0, INT64_MAX},
    [CH_KERNEL_NS] = {"KERNEL_NS", 0, 0, INT64_MAX},
    [CH_NULL_KERNELS] = {"NULL_KERNELS", 0, 0, 1},
    [CH_NULL_DEVICE] = {"NULL_DEVICE", 0, 0, 1},
    [CH_CHECK_READS] = {"CHECK_READS", 1, 0, 1},
    [CH_RACES] = {"RACES", 0, 0, 1},
    [CH_QUIET] = {"QUIET", 0, 0, 1},
    [CH_EXIT] = {"EXIT", 86, 0, 255},
};

/* A call that is to fail, and what has been counted.  Kept out of struct ch_rt: only here. */
static struct {
    char name[64]; /* "" any */
    uint64_t left; /* calls until it fails; 0: none */
    cudaError_t error;
    int async, happened;
} failure;

enum { MAX_NAMES = 128 };
static struct {
    const char *name;
    uint64_t n;
} counted[MAX_NAMES];
static uint64_t n_calls;

static uint64_t n_reports[CUDA_HOST_REPORTS];
static char last_report[1024];
static pthread_mutex_t report_lock = PTHREAD_MUTEX_INITIALIZER;

/* ---- Lock and time ---- */

void ch_lock(void)
{
    ch_tsan_hide(1);
    pthread_mutex_lock(&ch_rt.lock);
}

void ch_unlock(void)
{
    pthread_mutex_unlock(&ch_rt.lock);
    ch_tsan_hide(0);
}

void ch_wait_on(pthread_cond_t *cond)
{
    pthread_cond_wait(cond, &ch_rt.lock);
}

void ch_wait(void)
{
    ch_wait_on(&ch_rt.progress);
}

void ch_progress(void)
{
    pthread_cond_broadcast(&ch_rt.progress);
}

uint64_t ch_clock_ns(void)
{
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return (uint64_t)t.tv_sec * 1000000000u + (uint64_t)t.tv_nsec;
}

void ch_sleep_until(uint64_t ns)
{
    struct timespec t = {.tv_sec = (time_t)(ns / 1000000000u), .tv_nsec = (long)(ns % 1000000000u)};
    while (clock_nanosleep(CLOCK_MONOTONIC, TIMER_ABSTIME, &t, NULL) == EINTR)
        ;
}

void ch_sleep_ns(uint64_t ns)
{
    ch_sleep_until(ch_clock_ns() + ns);
}

/* splitmix64 (Steele, Lea, Flood 2014). */
uint64_t ch_random(uint64_t *state)
{
    uint64_t z = (*state += UINT64_C(0x9e3779b97f4a7c15));
    z = (z ^ (z >> 30)) * UINT64_C(0xbf58476d1ce4e5b9);
    z = (z ^ (z >> 27)) * UINT64_C(0x94d049bb133111eb);
    return z ^ (z >> 31);
}

/* ---- Reports ---- */

void ch_report(enum cuda_host_report kind, const char *fmt, ...)
{
    va_list ap;
    ch_tsan_hide(1);
    pthread_mutex_lock(&report_lock);
    n_reports[kind]++;
    va_start(ap, fmt);
    (void)vsnprintf(last_report, sizeof last_report, fmt, ap);
    va_end(ap);
    if (!ch_rt.setting[CH_QUIET])
        (void)fprintf(stderr, "cuda_host: %s\n", last_report);
    pthread_mutex_unlock(&report_lock);
    ch_tsan_hide(0);
}

static uint64_t control_reports(enum cuda_host_report kind)
{
    pthread_mutex_lock(&report_lock);
    uint64_t n = kind < CUDA_HOST_REPORTS ? n_reports[kind] : 0;
    pthread_mutex_unlock(&report_lock);
    return n;
}

static const char *control_last_report(void)
{
    return last_report;
}

static void control_clear_reports(void)
{
    pthread_mutex_lock(&report_lock);
    memset(n_reports, 0, sizeof n_reports);
    last_report[0] = 0;
    pthread_mutex_unlock(&report_lock);
}

/* ---- Settings ---- */

int64_t ch_get(enum ch_setting s)
{
    return __atomic_load_n(&ch_rt.setting[s], __ATOMIC_RELAXED);
}

/* "64m".  0 on success. */
static int parse_number(const char *text, int64_t *out)
{
    char *end;
    errno = 0;
    long long v = strtoll(text, &end, 10);
    if (end == text || errno)
        return -1;
    int shift = *end == 'k' ? 10 : *end == 'm' ? 20 : *end == 'g' ? 30 : 0;
    if (shift)
        end++;
    if (*end || v > (INT64_MAX >> shift) || v < -1)
        return -1;
    *out = v < 0 ? v : (int64_t)((uint64_t)v << shift);
    return 0;
}

/* A number, or a name of the toolkit such as cudaErrorIllegalAddress.  -1: neither. */
static int parse_error(const char *text)
{
    int64_t n;
    if (!parse_number(text, &n))
        return n >= 0 && n <= INT32_MAX ? (int)n : -1;
    for (int e = 1; e < 1000; e++)
        if (!strcmp(ch_error_name((cudaError_t)e), text))
            return e;
    return -1;
}

static void control_fail(const char *name, uint64_t n, int error, int async)
{
    ch_lock();
    (void)snprintf(failure.name, sizeof failure.name, "%s", name ? name : "");
    failure.left = n;
    failure.error = (cudaError_t)error;
    failure.async = async;
    failure.happened = 0;
    ch_unlock();
}

/* [name:]n:error[:async] */
static int set_failure(const char *value)
{
    char text[160], *part[4], *save = NULL;
    int n = 0, async = 0;
    int64_t at;
    if (strlen(value) >= sizeof text)
        return -1;
    memcpy(text, value, strlen(value) + 1);
    for (char *p = strtok_r(text, ":", &save); p && n < 4; p = strtok_r(NULL, ":", &save))
        part[n++] = p;
    if (n > 2 && !strcmp(part[n - 1], "async")) {
        async = 1;
        n--;
    }
    if (n < 2 || n > 3)
        return -1;
    int error = parse_error(part[n - 1]);
    if (parse_number(part[n - 2], &at) || at < 0 || error < 0)
        return -1;
    control_fail(n == 3 ? part[0] : NULL, (uint64_t)at, error, async);
    return 0;
}

static int control_set(const char *name, const char *value)
{
    if (!name || !value)
        return -1;
    if (!strcmp(name, "FAIL"))
        return set_failure(value);
    for (int i = 0; i < CH_SETTINGS; i++) {
        int64_t v;
        if (strcmp(settings[i].name, name) != 0)
            continue;
        if (parse_number(value, &v) || v < settings[i].least || v > settings[i].most ||
            (i == CH_GRANULE && (v & (v - 1))))
            return -1;
        __atomic_store_n(&ch_rt.setting[i], v, __ATOMIC_RELAXED);
        return 0;
    }
    return -1;
}

static void set_from_environment(const char *name)
{
    char variable[64];
    (void)snprintf(variable, sizeof variable, "CUDA_HOST_%s", name);
    const char *value = getenv(variable);
    if (value && *value && control_set(name, value))
        ch_report(CUDA_HOST_MISUSE, "%s=%s cannot be; see tests/cuda_host/control.h", variable,
                  value);
}

/* ---- Errors ---- */

int ch_is_sticky(cudaError_t e)
{
    switch ((int)e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case 721: /* cudaErrorContained, of newer toolkits */
    case cudaErrorUnknown:
        return 1;
    default:
        return 0;
    }
}

static void count_call(const char *name)
{
    n_calls++;
    for (int i = 0; i < MAX_NAMES; i++) {
        if (!counted[i].name)
            counted[i].name = name;
        if (counted[i].name == name || !strcmp(counted[i].name, name)) {
            counted[i].n++;
            return;
        }
    }
}

static uint64_t control_calls(const char *name)
{
    uint64_t n = 0;
    ch_lock();
    if (!name)
        n = n_calls;
    for (int i = 0; name && i < MAX_NAMES && counted[i].name; i++)
        if (!strcmp(counted[i].name, name))
            n = counted[i].n;
    ch_unlock();
    return n;
}

/* Whether this is the call, or the operation, that was asked to fail.  Lock held. */
static cudaError_t injected(const char *name, int async)
{
    if (!failure.left || failure.async != async)
        return cudaSuccess;
    if (!async && failure.name[0] && strcmp(failure.name, name) != 0)
        return cudaSuccess;
    if (--failure.left)
        return cudaSuccess;
    failure.happened = 1;
    if (!async && ch_is_sticky(failure.error))
        ch_rt.lost = failure.error;
    return failure.error;
}

cudaError_t ch_next_operation(void)
{
    return injected("", 1);
}

void ch_operation_failed(cudaError_t e)
{
    ch_rt.pending = e;
    if (ch_is_sticky(e))
        ch_rt.lost = e;
}

cudaError_t ch_take_pending(void)
{
    cudaError_t e = ch_rt.lost ? ch_rt.lost : ch_rt.pending;
    ch_rt.pending = cudaSuccess;
    return e;
}

/* Whoever waits for the device has looked at the errors before, or computes with what an operation
 * left that never ran. */
static void check_looked_at(const char *name)
{
    if (!ch_self.last_error || ch_self.last_error == cudaErrorNotReady || ch_self.error_seen)
        return;
    ch_report(CUDA_HOST_UNCHECKED, "%s returned %s, and nobody asked for it before %s",
              ch_self.error_call, ch_error_name((cudaError_t)ch_self.last_error), name);
    ch_self.error_seen = 1;
}

static cudaError_t no_device(void)
{
    if (ch_get(CH_DRIVER) / 1000 < CUDART_VERSION / 1000)
        return cudaErrorInsufficientDriver;
    return ch_get(CH_DEVICES) ? cudaSuccess : cudaErrorNoDevice;
}

void ch_call_over(void)
{
    if (ch_self.in_call)
        ch_self.calls_ns += ch_clock_ns() - ch_self.call_since_ns;
    ch_self.in_call = 0;
}

void ch_call_begins(void)
{
    if (!ch_self.in_call)
        ch_self.call_since_ns = ch_clock_ns();
    ch_self.in_call = 1;
}

static uint64_t control_driver_ns(void)
{
    return ch_self.calls_ns;
}

static int control_inside(void)
{
    return ch_self.in_call;
}

cudaError_t ch_enter(const char *name, int flags)
{
    cudaError_t e;
    if (!(flags & CH_UNTIMED))
        ch_call_begins();
    if (flags & CH_SYNC)
        check_looked_at(name);
    ch_lock();
    count_call(name);
    if (flags & CH_QUIET_CALL) {
        ch_unlock();
        return cudaSuccess;
    }
    e = no_device();
    if (!e && ch_self.in_host_func) {
        e = cudaErrorNotPermitted;
        ch_report(CUDA_HOST_MISUSE, "%s is called by a host function of a stream", name);
    }
    if (!e)
        e = ch_rt.lost;
    if (!e) {
        e = injected(name, 0);
        if (e && (flags & CH_RELEASE) && !ch_rt.lost) {
            ch_operation_failed(e); /* the call does its work and returns it */
            e = cudaSuccess;
        }
    }
    ch_unlock();
    return e;
}

cudaError_t ch_leave(const char *name, cudaError_t e)
{
    if (e) {
        ch_self.last_error = (int)e;
        ch_self.error_call = name;
        ch_self.error_seen = 0;
    }
    ch_call_over();
    return e;
}

/* ---- Statistics ---- */

void ch_busy(int kernels, int copies)
{
    uint64_t now = ch_clock_ns();
    if (ch_rt.kernels_running && ch_rt.copies_running)
        ch_rt.stats.overlap_ns += now - ch_rt.busy_since;
    if (ch_rt.kernels_running)
        ch_rt.stats.busy_ns[2] += now - ch_rt.busy_since;
    ch_rt.busy_since = now;
    ch_rt.kernels_running = (uint32_t)((int)ch_rt.kernels_running + kernels);
    ch_rt.copies_running = (uint32_t)((int)ch_rt.copies_running + copies);
}

static void control_stats(struct cuda_host_stats *stats)
{
    ch_lock();
    *stats = ch_rt.stats;
    stats->streams = ch_handle_count(CH_STREAM);
    stats->events = ch_handle_count(CH_EVENT);
    stats->graphs = ch_handle_count(CH_GRAPH) + ch_handle_count(CH_EXEC);
    ch_unlock();
}

static int control_failed(void)
{
    ch_lock();
    int happened = failure.happened;
    ch_unlock();
    return happened;
}

/* ---- Beginning and end ---- */

static void control_reset(void)
{
    ch_lock();
    size_t device = ch_rt.stats.device_bytes, pinned = ch_rt.stats.pinned_bytes;
    ch_rt.stats = (struct cuda_host_stats){.device_bytes = device,
                                           .device_peak = device,
                                           .pinned_bytes = pinned,
                                           .pinned_peak = pinned};
    memset(counted, 0, sizeof counted);
    memset(&failure, 0, sizeof failure);
    n_calls = 0;
    ch_rt.pending = ch_rt.lost = cudaSuccess;
    ch_unlock();
    control_clear_reports();
    for (int i = 0; i < CH_SETTINGS; i++) {
        __atomic_store_n(&ch_rt.setting[i], settings[i].usual, __ATOMIC_RELAXED);
        set_from_environment(settings[i].name);
    }
    set_from_environment("FAIL");
    ch_self.last_error = cudaSuccess;
}

__attribute__((visibility("default"))) const struct cuda_host_control *cuda_host_control(void)
{
    static const struct cuda_host_control control = {
        .struct_size = sizeof control,
        .set = control_set,
        .reset = control_reset,
        .calls = control_calls,
        .fail = control_fail,
        .failed = control_failed,
        .stats = control_stats,
        .reports = control_reports,
        .last_report = control_last_report,
        .clear_reports = control_clear_reports,
        .driver_ns = control_driver_ns,
        .inside = control_inside,
    };
    return &control;
}

__attribute__((constructor)) static void begin(void)
{
    control_reset();
    ch_fault_install();
}

/* An error that the process ends with is one that nobody asked for, too. */
__attribute__((destructor)) static void end(void)
{
    cudaError_t pending = ch_rt.lost ? cudaSuccess : ch_rt.pending;
    check_looked_at("the end");
    if (pending)
        ch_report(CUDA_HOST_UNCHECKED, "an operation on a stream failed with %s, and nobody asked",
                  ch_error_name(pending));
    ch_graphs_end();
    ch_streams_end();
    ch_driver_end(!ch_rt.lost);
    ch_memory_end(!ch_rt.lost);
    ch_worker_leave();
    ch_grid_stop();
    ch_fault_remove();
    uint64_t n = 0;
    for (int i = 0; i < CUDA_HOST_REPORTS; i++)
        n += n_reports[i];
    if (n && ch_get(CH_EXIT)) {
        (void)fprintf(stderr, "cuda_host: %llu reports; the last: %s\n", (unsigned long long)n,
                      last_report);
        fflush(NULL);
        _exit((int)ch_get(CH_EXIT));
    }
}
