/* SPDX-License-Identifier: Apache-2.0
 *
 * Clock of the CPUs, pressure and battery from the files Linux has for them.
 */
#include "core/govern/sense.h"

#include <dirent.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAX_CPUS 1024u
#define CLOCKS_READ 16u /* one of several CPUs of a large machine tells enough */

static bool read_text(const char *root, const char *path, char *out, size_t size)
{
    char full[PATH_MAX];
    int n = snprintf(full, sizeof full, "%s%s", root, path);
    FILE *f = n > 0 && (size_t)n < sizeof full ? fopen(full, "re") : NULL;
    bool ok;
    if (f == NULL)
        return false;
    ok = fgets(out, (int)size, f) != NULL;
    (void)fclose(f); /* only read from */
    return ok;
}

static void read_clocks(const char *root, struct atsi_sense *s)
{
    double sum = 0;
    uint32_t n = 0, step = 1;
    char path[96], text[64];
    /* kHz; how many CPUs there are is found by looking. */
    for (uint32_t cpu = 0; cpu < MAX_CPUS; cpu += step) {
        (void)snprintf(path, sizeof path, "/sys/devices/system/cpu/cpu%u/cpufreq/scaling_cur_freq",
                       cpu);
        if (!read_text(root, path, text, sizeof text))
            break;
        sum += strtod(text, NULL) / 1000;
        if (++n == CLOCKS_READ)
            step = 8;
    }
    if (n == 0 || !(sum > 0))
        return;
    s->cpu_mhz = sum / n;
    s->has |= ATSI_HAS_CPU_CLOCK;
}

/* "some avg10=1.25 avg60=..." */
static void read_pressure(const char *root, struct atsi_sense *s)
{
    char text[256];
    const char *at;
    if (!read_text(root, "/proc/pressure/cpu", text, sizeof text))
        return;
    at = strstr(text, "avg10=");
    if (at == NULL)
        return;
    s->cpu_wait = strtod(at + 6, NULL) / 100;
    if (!(s->cpu_wait >= 0) || s->cpu_wait > 1)
        return;
    s->has |= ATSI_HAS_PRESSURE;
}

/* On battery: a battery is there, and it is being emptied. */
static void read_battery(const char *root, struct atsi_sense *s)
{
    char folder[PATH_MAX], path[512], text[64];
    int n = snprintf(folder, sizeof folder, "%s/sys/class/power_supply", root);
    DIR *d = n > 0 && (size_t)n < sizeof folder ? opendir(folder) : NULL;
    struct dirent *e;
    if (d == NULL)
        return;
    while ((e = readdir(d)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        (void)snprintf(path, sizeof path, "/sys/class/power_supply/%s/type", e->d_name);
        if (!read_text(root, path, text, sizeof text) || strncmp(text, "Battery", 7) != 0)
            continue;
        (void)snprintf(path, sizeof path, "/sys/class/power_supply/%s/scope", e->d_name);
        if (read_text(root, path, text, sizeof text) && strncmp(text, "Device", 6) == 0)
            continue; /* a mouse's */
        (void)snprintf(path, sizeof path, "/sys/class/power_supply/%s/status", e->d_name);
        if (!read_text(root, path, text, sizeof text))
            continue;
        s->on_battery = s->on_battery || strncmp(text, "Discharging", 11) == 0;
        s->has |= ATSI_HAS_BATTERY;
    }
    (void)closedir(d); /* only read from */
}

void atsi_sense_host(const char *root, struct atsi_sense *s)
{
    read_clocks(root, s);
    read_pressure(root, s);
    read_battery(root, s);
}
