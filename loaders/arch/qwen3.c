/* SPDX-License-Identifier: Apache-2.0
 * qwen3 and qwen3moe: RMS norm per head on q and k; every layer dense, or every layer experts. */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

int arch_qwen3(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {
        .rope_mode = ATSI_ROPE_HALVES, .qk_norm = true, ARCH_FFN_NORM};
    return arch_build_decoder(m, &d, err);
}
