/* SPDX-License-Identifier: Apache-2.0
 *
 * The tables of cpu_amx for the kernel checker: with tiles in plain C on any CPU with AVX-512 VNNI,
 * and with those of the CPU, for which the process asks first, as the plugin's entry does.
 */
#include "amx_tables.h"

#include <sys/syscall.h>
#include <unistd.h>

void cpu_avx512_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void cpu_amx_kernels(const struct atsi_host *host, struct cpu_kernels *out);
void fill_panel_k_amx_emulated(struct cpu_kernels *out);

void amx_emulated_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    cpu_avx512_kernels(host, out);
    fill_panel_k_amx_emulated(out);
}

void amx_kernels(const struct atsi_host *host, struct cpu_kernels *out)
{
    (void)syscall(SYS_arch_prctl, 0x1023, 18); /* refused: the checker reports SIGILL */
    cpu_amx_kernels(host, out);
}
