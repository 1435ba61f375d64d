/* SPDX-License-Identifier: Apache-2.0
 *
 * NVIDIA's management library, as far as a governor asks it.  It comes with the driver; nothing of
 * it is needed to build.  Numbers and structures are those of its documented interface (NVML API
 * reference guide).
 */
#include "core/govern/sense.h"

#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>

typedef int status; /* 0: success */
typedef struct opaque *device;

enum { CLOCK_SM = 1, SENSOR_GPU = 0, NAME_BYTES = 96 };

struct memory_info {
    unsigned long long total, free, used;
};

struct atsi_nvml {
    void *library;
    device device;
    status (*shutdown)(void);
    status (*clock)(device, unsigned type, unsigned *mhz);
    status (*power)(device, unsigned *milliwatts);
    status (*heat)(device, unsigned sensor, unsigned *celsius);
    status (*memory)(device, struct memory_info *out);
};

/* ISO C has no cast from an object to a function; POSIX says that they have the same form. */
static void find(void *library, const char *name, void *fn)
{
    void *p = dlsym(library, name);
    memcpy(fn, &p, sizeof p);
}

static bool find_device(struct atsi_nvml *n, const char *name)
{
    status (*count)(unsigned *) = NULL;
    status (*by_index)(unsigned, device *) = NULL;
    status (*name_of)(device, char *, unsigned) = NULL;
    unsigned n_devices = 0;
    device d;
    find(n->library, "nvmlDeviceGetCount_v2", &count);
    find(n->library, "nvmlDeviceGetHandleByIndex_v2", &by_index);
    find(n->library, "nvmlDeviceGetName", &name_of);
    if (count == NULL || by_index == NULL || count(&n_devices) != 0)
        return false;
    for (unsigned i = 0; i < n_devices; i++) {
        char text[NAME_BYTES] = "";
        if (by_index(i, &d) != 0)
            continue;
        if (n_devices == 1 ||
            (name_of != NULL && name_of(d, text, sizeof text) == 0 && strcmp(text, name) == 0)) {
            n->device = d;
            return true;
        }
    }
    return false;
}

struct atsi_nvml *atsi_nvml_open(const char *name)
{
    struct atsi_nvml *n = calloc(1, sizeof *n);
    status (*init)(void) = NULL;
    if (n == NULL)
        return NULL;
    n->library = dlopen("libnvidia-ml.so.1", RTLD_NOW | RTLD_LOCAL);
    if (n->library == NULL) {
        free(n);
        return NULL;
    }
    find(n->library, "nvmlInit_v2", &init);
    if (init == NULL || init() != 0) {
        (void)dlclose(n->library); /* opened above */
        free(n);
        return NULL;
    }
    find(n->library, "nvmlShutdown", &n->shutdown);
    find(n->library, "nvmlDeviceGetClockInfo", &n->clock);
    find(n->library, "nvmlDeviceGetPowerUsage", &n->power);
    find(n->library, "nvmlDeviceGetTemperature", &n->heat);
    find(n->library, "nvmlDeviceGetMemoryInfo", &n->memory);
    if (!find_device(n, name)) {
        atsi_nvml_close(n);
        return NULL;
    }
    return n;
}

void atsi_nvml_close(struct atsi_nvml *n)
{
    if (n == NULL)
        return;
    if (n->shutdown != NULL)
        (void)n->shutdown(); /* nothing can be done about it */
    (void)dlclose(n->library);
    free(n);
}

void atsi_nvml_sense(struct atsi_nvml *n, struct atsi_sense *s)
{
    struct memory_info m;
    unsigned v;
    if (n == NULL)
        return;
    if (n->clock != NULL && n->clock(n->device, CLOCK_SM, &v) == 0 && v > 0) {
        s->gpu_mhz = v;
        s->has |= ATSI_HAS_GPU_CLOCK;
    }
    if (n->power != NULL && n->power(n->device, &v) == 0) {
        s->gpu_watts = v / 1000.0;
        s->has |= ATSI_HAS_GPU_POWER;
    }
    if (n->heat != NULL && n->heat(n->device, SENSOR_GPU, &v) == 0) {
        s->gpu_c = v;
        s->has |= ATSI_HAS_GPU_HEAT;
    }
    if (n->memory != NULL && n->memory(n->device, &m) == 0 && m.used <= m.total) {
        s->gpu_used = m.used;
        s->gpu_total = m.total;
        s->has |= ATSI_HAS_GPU_MEMORY;
    }
}
