/* SPDX-License-Identifier: Apache-2.0
 * The table of kernels, by kind of operation: one file each (op.h). */
#include "op.h"

extern const struct cuda_op cuda_op_embed, cuda_op_rms_norm, cuda_op_matmul, cuda_op_rope_table,
    cuda_op_rope, cuda_op_attn, cuda_op_swiglu, cuda_op_add, cuda_op_topk, cuda_op_matmul_id,
    cuda_op_moe_sum, cuda_op_gate, cuda_op_regroup, cuda_op_conv, cuda_op_delta_net;

const struct cuda_op *const cuda_ops[ATSI_OP_COUNT] = {
    [ATSI_OP_EMBED] = &cuda_op_embed,         [ATSI_OP_RMS_NORM] = &cuda_op_rms_norm,
    [ATSI_OP_MATMUL] = &cuda_op_matmul,       [ATSI_OP_ROPE_TABLE] = &cuda_op_rope_table,
    [ATSI_OP_ROPE] = &cuda_op_rope,           [ATSI_OP_ATTN] = &cuda_op_attn,
    [ATSI_OP_SWIGLU] = &cuda_op_swiglu,       [ATSI_OP_ADD] = &cuda_op_add,
    [ATSI_OP_TOPK] = &cuda_op_topk,           [ATSI_OP_MATMUL_ID] = &cuda_op_matmul_id,
    [ATSI_OP_MOE_SUM] = &cuda_op_moe_sum,     [ATSI_OP_GATE] = &cuda_op_gate,
    [ATSI_OP_REGROUP] = &cuda_op_regroup,     [ATSI_OP_CONV] = &cuda_op_conv,
    [ATSI_OP_DELTA_NET] = &cuda_op_delta_net,
};
