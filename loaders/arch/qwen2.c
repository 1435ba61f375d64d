/* SPDX-License-Identifier: Apache-2.0
 * qwen2: Qwen2, Qwen2.5, DeepSeek-R1-Distill-Qwen.  Biases on q, k, v (taken when present). */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

int arch_qwen2(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {
        .rope_mode = ATSI_ROPE_HALVES, .output_bias = true, ARCH_FFN_NORM};
    return arch_build_decoder(m, &d, err);
}
