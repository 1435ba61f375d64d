/* SPDX-License-Identifier: Apache-2.0
 * llama: Llama 2, 3, 3.1, 3.3, Mistral 7B, Mixtral.  Rotation of neighbouring pairs (the converter
 * permuted q and k rows for it); Llama 3 scaling lies in the rope_freqs tensor. */
#include "loaders/arch/decoder.h"
#include "loaders/arch/list.h"

int arch_llama(struct atsi_loaded *m, struct atsi_err *err)
{
    static const struct arch_decoder d = {
        .rope_mode = ATSI_ROPE_PAIRS, .ffn_bias = true, .experts_by_ff = true, ARCH_FFN_NORM};
    return arch_build_decoder(m, &d, err);
}
