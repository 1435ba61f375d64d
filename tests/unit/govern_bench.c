/* SPDX-License-Identifier: Apache-2.0
 * The simulated laptop of the governor's tests. */
#include "tests/unit/govern_bench.h"

#include <math.h>

#define FULL_MHZ 1980.0

const struct atsi_sim_params gb_base = {
    .struct_size = sizeof gb_base,
    .machine = ATSI_SOURCE_DIR "/profiles/machines/laptop-rtx3060.ini",
    .model = ATSI_SOURCE_DIR "/profiles/models/qwen3-14b-int4.ini",
    .ctx = 1024,
    .prompt = 512,
    .generated = 512,
    .max_slots = 8,
    .contention = 1,
    .load_pcie = 1};
struct atsi_sim_run gb_sim;
struct atsi_err gb_err;
static struct atsi_runtime *rt;

int gb_open(const char *setting)
{
    const char *const overrides[] = {setting, NULL};
    struct atsi_runtime_params p = {.struct_size = sizeof p, .overrides = overrides};
    int rc = atsi_runtime_open(&p, &rt, &gb_err);
    gb_sim = (struct atsi_sim_run){.rt = rt, .p = &gb_base, .err = &gb_err};
    if (rc == ATSI_OK)
        rc = atsi_sim_open_machine(&gb_sim);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_items(&gb_sim);
    if (rc == ATSI_OK)
        rc = atsi_sim_find_policies(&gb_sim);
    if (rc == ATSI_OK)
        rc = atsi_sim_open_devices(&gb_sim);
    if (rc != ATSI_OK)
        (void)fprintf(stderr, "%s\n", gb_err.msg);
    return rc != ATSI_OK || gb_sim.items->n > GB_ITEMS;
}

void gb_close(void)
{
    atsi_sim_close_devices(&gb_sim);
    atsi_items_free(gb_sim.items);
    atsi_sim_close_machine(&gb_sim);
    atsi_runtime_close(rt);
}

void gb_need(int rc)
{
    if (rc != ATSI_OK)
        fail_msg("%s", gb_err.msg);
}

struct atsi_question *gb_question(struct gb_load l)
{
    struct atsi_sim_params p = gb_base;
    struct atsi_question_params qp;
    struct atsi_question *q = NULL;
    p.load_cpu = l.cpu;
    p.load_gpu = l.gpu;
    gb_sim.p = &p;
    qp = (struct atsi_question_params){
        .phase = {atsi_sim_conditions(&gb_sim, ATSI_PHASE_PREFILL, true),
                  atsi_sim_conditions(&gb_sim, ATSI_PHASE_DECODE, true)},
        .vram_bytes = atsi_sim_vram(&gb_sim),
        .temp_bytes = atsi_sim_slot_memory(&gb_sim),
        .max_slots = p.max_slots,
        .mix_prompt = p.prompt,
        .mix_generated = p.generated,
        .n_vocab = 1};
    gb_need(atsi_sim_question(&gb_sim, &qp, &q));
    gb_sim.p = &gb_base;
    return q;
}

struct atsi_sense gb_sense(uint64_t *seed, struct gb_load l)
{
    double noise[2];
    for (int k = 0; k < 2; k++) {
        *seed = *seed * UINT64_C(6364136223846793005) + UINT64_C(1442695040888963407);
        noise[k] = ((double)(*seed >> 40) / (double)(1 << 24) - 0.5) * 0.12;
    }
    return (struct atsi_sense){.has = ATSI_HAS_GPU_CLOCK | ATSI_HAS_PRESSURE,
                               .gpu_mhz = FULL_MHZ / l.gpu * (1 + noise[0]),
                               .cpu_wait = fmax(1 - (1 + noise[1]) / l.cpu, 0)};
}

double gb_reload_seconds(const int32_t *before, const int32_t *after)
{
    double bytes = 0;
    for (uint32_t i = 0; i < gb_sim.items->n; i++)
        if (before[i] == ATSI_DEVICE_HOST && after[i] == ATSI_DEVICE_ACCEL)
            bytes += (double)gb_sim.items->items[i].resident_bytes;
    return bytes / (gb_sim.machine.pcie_gbs * 1e9);
}
