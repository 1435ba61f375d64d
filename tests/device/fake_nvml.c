/* SPDX-License-Identifier: Apache-2.0
 *
 * A management library of one device whose clock and memory are what a file says ("MHZ USED_MIB
 * TOTAL_MIB"), read anew at each question.  FAKE_NVML names the file.  Built as libnvidia-ml.so.1
 * in a folder that tests put into LD_LIBRARY_PATH.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define EXPORT __attribute__((visibility("default")))

struct memory_info {
    unsigned long long total, free, used;
};

EXPORT int nvmlInit_v2(void);
EXPORT int nvmlShutdown(void);
EXPORT int nvmlDeviceGetCount_v2(unsigned *n);
EXPORT int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device);
EXPORT int nvmlDeviceGetName(void *device, char *name, unsigned size);
EXPORT int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz);
EXPORT int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *out);

static int read_file(unsigned *mhz, unsigned long long *used, unsigned long long *total)
{
    const char *path = getenv("FAKE_NVML");
    FILE *f = path != NULL ? fopen(path, "re") : NULL;
    int n;
    if (f == NULL)
        return 999;
    n = fscanf(f, "%u %llu %llu", mhz, used, total); /* NOLINT(cert-err34-c): our own file */
    (void)fclose(f);                                 /* only read from */
    return n == 3 ? 0 : 999;
}

int nvmlInit_v2(void)
{
    return 0;
}

int nvmlShutdown(void)
{
    return 0;
}

int nvmlDeviceGetCount_v2(unsigned *n)
{
    *n = 1;
    return 0;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned i, void **device)
{
    static int the_device;
    *device = &the_device;
    return i == 0 ? 0 : 2;
}

int nvmlDeviceGetName(void *device, char *name, unsigned size)
{
    (void)device;
    (void)snprintf(name, size, "scripted device");
    return 0;
}

int nvmlDeviceGetClockInfo(void *device, unsigned type, unsigned *mhz)
{
    unsigned long long used, total;
    (void)device;
    return type == 1 ? read_file(mhz, &used, &total) : 2;
}

int nvmlDeviceGetMemoryInfo(void *device, struct memory_info *out)
{
    unsigned long long used = 0, total = 0;
    unsigned mhz;
    int rc = read_file(&mhz, &used, &total);
    (void)device;
    *out = (struct memory_info){total << 20, (total - used) << 20, used << 20};
    return rc;
}
