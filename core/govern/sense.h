/* SPDX-License-Identifier: Apache-2.0
 *
 * What a governor looks at: clocks, heat, power, memory that others take, pressure, the battery.
 * Whatever a machine does not say is left out, quietly.
 */
#ifndef ATSI_CORE_GOVERN_SENSE_H
#define ATSI_CORE_GOVERN_SENSE_H

#include <stdbool.h>
#include <stdint.h>

#include "atsinfer/status.h"

enum atsi_sense_has {
    ATSI_HAS_GPU_CLOCK = 1 << 0,
    ATSI_HAS_GPU_POWER = 1 << 1,
    ATSI_HAS_GPU_HEAT = 1 << 2,
    ATSI_HAS_GPU_MEMORY = 1 << 3,
    ATSI_HAS_CPU_CLOCK = 1 << 4,
    ATSI_HAS_PRESSURE = 1 << 5,
    ATSI_HAS_BATTERY = 1 << 6
};

struct atsi_sense {
    uint32_t has;                     /* enum atsi_sense_has */
    double gpu_mhz, gpu_watts, gpu_c; /* clock of the multiprocessors */
    uint64_t gpu_used, gpu_total;     /* bytes, of all processes */
    double cpu_mhz;                   /* average of the CPUs that say it */
    double cpu_wait;                  /* share of the last 10 s in which a task waited for a CPU */
    bool on_battery;
};

/* ---------------------------------------------------------------- Linux */
/* Adds what /sys and /proc below `root` ("": this machine) say: cpufreq, PSI, power_supply (kernel
 * documentation: admin-guide/pm/cpufreq, accounting/psi, ABI/testing/sysfs-class-power). */
void atsi_sense_host(const char *root, struct atsi_sense *s);

/* ---------------------------------------------------------------- NVIDIA's management library */
struct atsi_nvml;

/* The device named `name`, or the only one there is; libnvidia-ml.so.1 is looked for at run time.
 * NULL: no library, no such device, or not enough memory. */
struct atsi_nvml *atsi_nvml_open(const char *name);
void atsi_nvml_close(struct atsi_nvml *n); /* NULL is allowed */
void atsi_nvml_sense(struct atsi_nvml *n, struct atsi_sense *s);

#endif
