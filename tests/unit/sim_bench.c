/* SPDX-License-Identifier: Apache-2.0
 * A question on the simulated devices, for tests of rounds. */
#include "tests/unit/sim_bench.h"

#include "plugins/sim/sim.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <string.h>

#include <cmocka.h>

const char *sim_bench_load = "";
uint64_t sim_bench_vram = SIM_BENCH_VRAM;
static const char machine_text[] =
    "[platform]\nname = test\nvram_mib = 600\nreserve_mib = 100\n"
    "temp_mib = 40\ncpu_gbs = 40\ncpu_gbs_sustained = 30\n"
    "dram_gbs = 46\ncpu_gflops_q4 = 600\ncpu_gflops_fp16 = 300\n"
    "cpu_gflops_mxfp4 = 500\ncpu_op_us = 8\ngpu_gbs = 270\n"
    "gpu_tflops_q4 = 20\ngpu_tflops_fp16 = 20\ngpu_tflops_mxfp4 = 20\n"
    "gpu_op_us = 6\npcie_gbs = 23\nxfer_us = 10\nck_gbs = 12\n"
    "cg_us = 8\ngc_us = 16\ncg_base_us = 30\ngc_base_us = 45\n"
    "evt_us = 4\nrlat_us = 15\ngap_us = 300\nchunk = 64\n";
const char sim_bench_dense[] = "[model]\nname = dense\nformat = q4\nlayers = 6\nhidden = 2048\n"
                               "heads = 16\nkv_heads = 4\nhead_dim = 128\nffn = 6144\n"
                               "vocab = 32000\nattn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n";
const char sim_bench_moe[] = "[model]\nname = moe\nformat = q4\nlayers = 6\nhidden = 2048\n"
                             "heads = 16\nkv_heads = 4\nhead_dim = 128\nexperts = 32\ntopk = 4\n"
                             "expert_ffn = 1024\nvocab = 32000\nattn_bpw = 4.5\nffn_bpw = 4.5\n"
                             "head_bpw = 6.5\n";

static const char *no_param(void *ctx, const char *plugin, const char *key)
{
    (void)ctx;
    return strcmp(plugin, "sim") == 0 && strcmp(key, "load") == 0 ? sim_bench_load : "";
}

void sim_bench_open(struct sim_bench *b, const char *shape, bool contention)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_question_params p = {.temp_bytes = 40U << 20,
                                     .vram_bytes = sim_bench_vram,
                                     .max_slots = 3,
                                     .mix_prompt = 64,
                                     .mix_generated = 16,
                                     .n_vocab = 32000};
    memset(b, 0, sizeof *b);
    b->host = (struct atsi_host){.struct_size = sizeof b->host, .param_get = no_param};
    scratch_write("machine.ini", machine_text);
    assert_int_equal(atsi_machine_read(scratch_path("machine.ini"), &b->machine, &err), ATSI_OK);
    scratch_write("model.ini", shape);
    assert_int_equal(atsi_items_from_shape(scratch_path("model.ini"), &b->items, &err), ATSI_OK);
    for (int f = 0; f < 2; f++)
        p.phase[f] = (struct atsi_conditions){.tokens = f == ATSI_PHASE_PREFILL ? 64 : 1,
                                              .ctx = f == ATSI_PHASE_PREFILL ? 0 : 128,
                                              .ctx_max = 512,
                                              .contention = contention,
                                              .load_cpu = 1,
                                              .load_gpu = 1,
                                              .load_pcie = 1};
    assert_int_equal(atsi_question_model(b->items, &b->machine, &p, &b->q, &err), ATSI_OK);
    for (uint32_t f = 0; f < 2; f++)
        assert_int_equal(
            atsi_model_source_open(b->q, &b->machine, f, &p.phase[f], &b->source[f], &err),
            ATSI_OK);
    b->d.host = &b->host;
    b->d.ops[0] = &sim_cpu_ops;
    b->d.ops[1] = &sim_gpu_ops;
    b->d.tx_ops = &sim_transfer_ops;
    for (int v = 0; v < 2; v++) {
        assert_int_equal(b->d.ops[v]->open(&b->host, 0, &b->d.be[v], &err), ATSI_OK);
        assert_int_equal(b->d.ops[v]->queue_open(b->d.be[v], &b->d.queue[v], &err), ATSI_OK);
    }
    assert_int_equal(b->d.tx_ops->open(&b->host, b->d.be[0], b->d.be[1], &b->d.tx, &err), ATSI_OK);
    assert_int_equal(atsi_exec_channels(&b->d, &err), ATSI_OK);
}

void sim_bench_close(struct sim_bench *b)
{
    b->d.tx_ops->close(b->d.tx);
    for (int v = 0; v < 2; v++) {
        b->d.ops[v]->queue_close(b->d.queue[v]);
        b->d.ops[v]->close(b->d.be[v]);
    }
    for (int f = 0; f < 2; f++)
        atsi_model_source_close(b->source[f]);
    atsi_question_free(b->q);
    atsi_items_free(b->items);
}
