/* SPDX-License-Identifier: Apache-2.0
 *
 * Finding and opening devices.  Looking for them asks the driver for numbers only and creates no
 * context.  A missing driver, one older than the runtime this plugin is linked with, or a device
 * that is too old are normal: there are 0 devices then, and the log says why.
 */
#include "cuda_plugin.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

static pthread_mutex_t open_lock = PTHREAD_MUTEX_INITIALIZER;
static struct atsi_backend *open_list; /* under open_lock */

/* ---------------------------------------------------------------- probing */
static void say_no_driver(const struct atsi_host *host, cudaError_t e)
{
    int driver = 0, runtime = 0;
    if (cudaDriverGetVersion(&driver) != cudaSuccess)
        driver = 0;
    if (cudaRuntimeGetVersion(&runtime) != cudaSuccess)
        runtime = 0;
    (void)cudaGetLastError(); /* nothing went wrong yet */
    if (driver == 0)
        host->log(host->ctx, ATSI_LOG_INFO, CUDA_PLUGIN_NAME, "no NVIDIA driver here");
    else if (e == cudaErrorInsufficientDriver)
        host->log(host->ctx, ATSI_LOG_WARN, CUDA_PLUGIN_NAME,
                  "the NVIDIA driver is for CUDA %d.%d, this plugin needs CUDA %d.%d: update the "
                  "driver, or build the plugin with an older toolkit",
                  driver / 1000, driver % 1000 / 10, runtime / 1000, runtime % 1000 / 10);
    else if (e == cudaErrorNoDevice)
        host->log(host->ctx, ATSI_LOG_INFO, CUDA_PLUGIN_NAME, "no NVIDIA device here");
    else
        host->log(host->ctx, ATSI_LOG_WARN, CUDA_PLUGIN_NAME, "no NVIDIA device is usable: %s (%s)",
                  cudaGetErrorString(e), cudaGetErrorName(e));
}

/* Compute capability of device i, 75 or 90; 0 when it cannot be had. */
static int capability(int i)
{
    int major = 0, minor = 0;
    if (cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, i) != cudaSuccess ||
        cudaDeviceGetAttribute(&minor, cudaDevAttrComputeCapabilityMinor, i) != cudaSuccess) {
        (void)cudaGetLastError(); /* this device is left out */
        return 0;
    }
    return 10 * major + minor;
}

static bool usable(const struct atsi_host *host, const struct cuda_settings *set, int i)
{
    int sm = capability(i);
    if (set->device >= 0 && set->device != i)
        return false;
    if (sm != 0 && sm < CUDA_MIN_SM)
        host->log(host->ctx, ATSI_LOG_INFO, CUDA_PLUGIN_NAME,
                  "device %d has compute capability %d.%d, needed is %d.%d", i, sm / 10, sm % 10,
                  CUDA_MIN_SM / 10, CUDA_MIN_SM % 10);
    return sm >= CUDA_MIN_SM;
}

static int count_all(const struct atsi_host *host)
{
    int n = 0;
    cudaError_t e = cudaGetDeviceCount(&n);
    if (e == cudaSuccess)
        return n;
    say_no_driver(host, e);
    return 0;
}

int cuda_probe(const struct atsi_host *host)
{
    struct cuda_settings set;
    int all = count_all(host), n = 0;
    cuda_settings_get(host, &set);
    for (int i = 0; i < all; i++)
        n += usable(host, &set, i) ? 1 : 0;
    if (set.device >= all && all > 0)
        host->log(host->ctx, ATSI_LOG_WARN, CUDA_PLUGIN_NAME, "device = %d, but there are %d",
                  set.device, all);
    return n;
}

/* CUDA's number of the index-th usable device, or -1. */
static int device_of(const struct atsi_host *host, const struct cuda_settings *set, int index)
{
    int all = count_all(host);
    for (int i = 0; i < all && index >= 0; i++)
        if (usable(host, set, i) && index-- == 0)
            return i;
    return -1;
}

/* ---------------------------------------------------------------- the list of open ones */
static void list_add(struct atsi_backend *be)
{
    (void)pthread_mutex_lock(&open_lock); /* cannot fail: a plain mutex, not held */
    be->next = open_list;
    open_list = be;
    (void)pthread_mutex_unlock(&open_lock);
}

/* Takes it off; whether another one is open on the same device. */
static bool list_remove(struct atsi_backend *be)
{
    bool shared = false;
    (void)pthread_mutex_lock(&open_lock); /* as above */
    for (struct atsi_backend **p = &open_list; *p != NULL;) {
        if (*p == be) {
            *p = be->next;
            continue;
        }
        shared = shared || (*p)->dev.index == be->dev.index;
        p = &(*p)->next;
    }
    (void)pthread_mutex_unlock(&open_lock);
    return shared;
}

bool cuda_is_open(const struct atsi_backend *be)
{
    bool found = false;
    (void)pthread_mutex_lock(&open_lock); /* as above */
    for (const struct atsi_backend *b = open_list; b != NULL && !found; b = b->next)
        found = b == be;
    (void)pthread_mutex_unlock(&open_lock);
    return found;
}

/* ---------------------------------------------------------------- opening */
static int attribute(struct atsi_backend *be, enum cudaDeviceAttr what, const char *name, int *out,
                     struct atsi_err *err)
{
    return cuda_check(be, cudaDeviceGetAttribute(out, what, be->dev.index), err, "asking for %s",
                      name);
}

/* Name and numbers of the device; what the plugin cannot do without. */
static int describe(struct atsi_backend *be, struct atsi_err *err)
{
    struct cudaDeviceProp *prop = calloc(1, sizeof *prop); /* about 1 KiB */
    int n_sm = 0, shared = 0, unified = 0, rc;
    if (prop == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    rc = cuda_check(be, cudaGetDeviceProperties(prop, be->dev.index), err, "asking for its name");
    if (rc == ATSI_OK)
        (void)snprintf(be->name, sizeof be->name, "%.63s", prop->name);
    free(prop);
    if (rc == ATSI_OK)
        rc = attribute(be, cudaDevAttrMultiProcessorCount, "multiprocessors", &n_sm, err);
    if (rc == ATSI_OK)
        rc = attribute(be, cudaDevAttrMaxSharedMemoryPerBlockOptin, "shared memory", &shared, err);
    if (rc == ATSI_OK)
        rc = attribute(be, cudaDevAttrUnifiedAddressing, "unified addresses", &unified, err);
    if (rc != ATSI_OK)
        return rc;
    if (unified == 0 || n_sm <= 0)
        return atsi_fail(err, ATSI_ENODEV,
                         CUDA_PLUGIN_NAME ": device %d (%s) does not share addresses with the host",
                         be->dev.index, be->name);
    be->dev.sm = capability(be->dev.index);
    be->dev.n_sm = (uint32_t)n_sm;
    be->dev.shared_bytes = (size_t)shared;
    be->dev.fast_half = be->set.fast_half;
    return ATSI_OK;
}

/* Everything that open() acquired.  Only a reset makes the device usable again in this process
 * after its context was lost; that takes everything on it away, so it comes last, and not while
 * another backend (`shared`) has the device open. */
static void release(struct atsi_backend *be, bool shared)
{
    cuda_host_unregister_all(be);
    cuda_clock_close(be);
    if (be->lost && !shared)
        cuda_note(be, cudaDeviceReset(), "resetting the device");
    cuda_jobs_free(be);
    cuda_vmm_close(be->vmm);
    free(be->ranges.at);
    free(be);
}

int cuda_open(const struct atsi_host *host, int index, struct atsi_backend **out,
              struct atsi_err *err)
{
    struct atsi_backend *be = calloc(1, sizeof *be);
    int rc;
    *out = NULL;
    if (be == NULL)
        return atsi_fail(err, ATSI_ENOMEM, CUDA_PLUGIN_NAME ": out of memory");
    be->host = host;
    be->timings_end = &be->timings;
    (void)snprintf(be->name, sizeof be->name, "unnamed");
    cuda_settings_get(host, &be->set);
    be->dev.index = device_of(host, &be->set, index);
    if (be->dev.index < 0) {
        free(be);
        return atsi_fail(err, ATSI_ENODEV, CUDA_PLUGIN_NAME ": there is no usable device %d",
                         index);
    }
    rc = describe(be, err);
    if (rc == ATSI_OK)
        rc = cuda_enter(be, err);
    if (rc == ATSI_OK)
        rc = cuda_vmm_open(be, &be->vmm, err);
    if (rc == ATSI_OK)
        rc = cuda_clock_open(be, err);
    if (rc != ATSI_OK) {
        release(be, list_remove(be));
        return rc;
    }
    list_add(be);
    *out = be;
    return ATSI_OK;
}

void cuda_close(struct atsi_backend *be)
{
    bool shared;
    if (be == NULL)
        return;
    shared = list_remove(be);
    cuda_note(be, cudaSetDevice(be->dev.index), "making the device current");
    if (!be->lost)
        cuda_timing_settle(be);
    release(be, shared);
}

int cuda_props(const struct atsi_backend *be, struct atsi_props *out)
{
    size_t free_bytes = 0, total = 0;
    if (out->struct_size < sizeof *out)
        return ATSI_EINVAL;
    if (be->lost)
        return ATSI_ELOST;
    if (cudaSetDevice(be->dev.index) != cudaSuccess ||
        cudaMemGetInfo(&free_bytes, &total) != cudaSuccess) {
        (void)cudaGetLastError(); /* 0: not known */
        free_bytes = total = 0;
    }
    *out = (struct atsi_props){.struct_size = sizeof *out,
                               .device_kind = ATSI_DEVICE_GPU,
                               .mem_total_bytes = total,
                               .mem_free_bytes = free_bytes,
                               .buf_align_bytes = CUDA_ALIGN,
                               .buf_pad_bytes = 0};
    (void)snprintf(out->name, sizeof out->name, "%s", be->name);
    (void)snprintf(out->detail, sizeof out->detail,
                   "compute capability %d.%d, %u multiprocessors%s", be->dev.sm / 10,
                   be->dev.sm % 10, be->dev.n_sm, be->set.graphs ? ", graphs" : "");
    return ATSI_OK;
}
