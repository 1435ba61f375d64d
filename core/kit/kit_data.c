/* SPDX-License-Identifier: Apache-2.0
 *
 * Problems for checks of policies: shapes and machines as ini text, read by the readers of shape
 * files and machine profiles, with budgets and slots from none to plenty; and small random ones.
 */
#include "core/kit/kit.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

#define LAPTOP 0
#define SERVER 1

static const char *const machines[] = {
    [LAPTOP] = "[platform]\nname = laptop\nvram_mib = 0\ncpu_gbs = 40\ncpu_gbs_sustained = 33\n"
               "dram_gbs = 46\ncpu_gflops_q4 = 600\ncpu_gflops_fp16 = 350\ncpu_gflops_mxfp4 = 500\n"
               "cpu_op_us = 8\ngpu_gbs = 270\ngpu_tflops_q4 = 20\ngpu_tflops_fp16 = 20\n"
               "gpu_tflops_mxfp4 = 20\ngpu_moe_eff = 0.5\ngpu_op_us = 6\npcie_gbs = 23\n"
               "xfer_us = 10\nck_gbs = 12\ncg_us = 8\ngc_us = 16\nevt_us = 4\nrlat_us = 15\n"
               "gap_us = 300\n",
    [SERVER] = "[platform]\nname = server\nvram_mib = 0\ncpu_gbs = 180\ncpu_gbs_sustained = 170\n"
               "dram_gbs = 200\ncpu_gflops_q4 = 3000\ncpu_gflops_fp16 = 1500\n"
               "cpu_gflops_mxfp4 = 2500\ncpu_op_us = 5\ngpu_gbs = 1500\ngpu_tflops_q4 = 150\n"
               "gpu_tflops_fp16 = 150\ngpu_tflops_mxfp4 = 150\ngpu_moe_eff = 0.5\ngpu_op_us = 4\n"
               "pcie_gbs = 50\nxfer_us = 6\nck_gbs = 30\ncg_us = 6\ngc_us = 12\nevt_us = 3\n"
               "rlat_us = 12\ngap_us = 200\n",
};

/* Small ones are a few layers of models of the kind; the last two are whole. */
static const struct {
    const char *name, *text;
} shapes[KIT_ROWS] = {
    {"dense-small", "[model]\nname = dense-small\nformat = q4\nlayers = 6\nhidden = 2048\n"
                    "heads = 16\nkv_heads = 4\nhead_dim = 128\nffn = 6144\nvocab = 32000\n"
                    "attn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n"},
    {"experts-small", "[model]\nname = experts-small\nformat = mxfp4\nlayers = 5\nhidden = 2880\n"
                      "heads = 64\nkv_heads = 8\nhead_dim = 64\nexperts = 32\ntopk = 4\n"
                      "expert_ffn = 2880\nvocab = 64000\nattn_bpw = 8.5\nffn_bpw = 4.25\n"
                      "head_bpw = 8.5\n"},
    {"hybrid-small", "[model]\nname = hybrid-small\nformat = q4\nlayers = 8\nhidden = 2048\n"
                     "heads = 16\nkv_heads = 2\nhead_dim = 256\nexperts = 64\ntopk = 6\n"
                     "expert_ffn = 512\nshared_ffn = 512\nq_gate = 1\nfull_interval = 4\n"
                     "lin_k_heads = 16\nlin_v_heads = 32\nlin_head_dim = 128\nvocab = 50000\n"
                     "attn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n"},
    {"half-small", "[model]\nname = half-small\nformat = fp16\nlayers = 4\nhidden = 4096\n"
                   "heads = 32\nkv_heads = 2\nhead_dim = 128\nffn = 13696\nvocab = 100000\n"
                   "attn_bpw = 16\nffn_bpw = 16\nhead_bpw = 16\n"},
    {"dense-14b", "[model]\nname = dense-14b\nformat = q4\nlayers = 40\nhidden = 5120\n"
                  "heads = 40\nkv_heads = 8\nhead_dim = 128\nffn = 17408\nvocab = 150000\n"
                  "attn_bpw = 4.5\nffn_bpw = 4.5\nhead_bpw = 6.5\n"},
    {"experts-30b", "[model]\nname = experts-30b\nformat = q4\nlayers = 48\nhidden = 2048\n"
                    "heads = 32\nkv_heads = 4\nhead_dim = 128\nexperts = 128\ntopk = 8\n"
                    "expert_ffn = 768\nvocab = 150000\nattn_bpw = 4.5\nffn_bpw = 4.5\n"
                    "head_bpw = 6.5\n"},
};
enum { FIRST_LARGE = 4, ALL = 2000 /* per mille: more than everything */ };

/* Budgets of the small shapes; and whole sets of the large ones, where a placement takes long. */
static const uint16_t budgets[] = {0, 60, 400, ALL};
static const uint8_t slots[] = {0, 2, 8};
static const struct {
    uint16_t budget_pm;
    uint8_t slots, rules;
} large[] = {{400, 2, 0}, {0, 8, 0}, {150, 3, 1}, {ALL, 0, 0}};

enum {
    N_BUDGETS = sizeof budgets / sizeof budgets[0],
    N_SLOTS = sizeof slots / sizeof slots[0],
    PER_SMALL = N_BUDGETS * N_SLOTS * 2,
    N_SMALL = FIRST_LARGE * PER_SMALL,
    N_LARGE = sizeof large / sizeof large[0]
};

uint32_t atsi_kit_n_cases(bool quick)
{
    return quick ? N_SMALL : N_SMALL + (KIT_ROWS - FIRST_LARGE) * N_LARGE;
}

void atsi_kit_get_case(uint32_t i, struct atsi_kit_case *out)
{
    *out = (struct atsi_kit_case){0};
    if (i < N_SMALL) {
        out->shape = (uint8_t)(i / PER_SMALL);
        out->budget_pm = budgets[i / (2 * N_SLOTS) % N_BUDGETS];
        out->slots = slots[i / 2 % N_SLOTS];
        out->rules = i % 2;
    } else {
        i -= N_SMALL;
        out->shape = (uint8_t)(FIRST_LARGE + i / N_LARGE);
        out->budget_pm = large[i % N_LARGE].budget_pm;
        out->slots = large[i % N_LARGE].slots;
        out->rules = large[i % N_LARGE].rules;
        out->large = 1;
    }
    out->machine = (uint8_t)(i / 2 % 2 == 0 ? LAPTOP : SERVER);
    out->contention = i % 3 != 0;
}

void atsi_kit_get_row(uint32_t shape, struct atsi_kit_case *out)
{
    *out = (struct atsi_kit_case){.shape = (uint8_t)shape,
                                  .machine = LAPTOP,
                                  .budget_pm = 400,
                                  .slots = 3,
                                  .contention = 1,
                                  .large = shape >= FIRST_LARGE};
}

void atsi_kit_case_label(const struct atsi_kit_case *c, char *out, size_t size)
{
    (void)snprintf(out, size, "%s on %s, budget %u.%u %%, %u slots%s%s", shapes[c->shape].name,
                   c->machine == LAPTOP ? "laptop" : "server", c->budget_pm / 10U,
                   c->budget_pm % 10U, c->slots, c->rules ? ", rules" : "",
                   c->contention ? "" : ", no contention");
}

/* ---------------------------------------------------------------- from text to questions */
/* The readers take files: text as a file that lies in memory alone. */
static int text_file(const char *text, char path[32], struct atsi_err *err)
{
    size_t left = strlen(text);
    int fd = memfd_create("atsinfer-kit", MFD_CLOEXEC);
    if (fd < 0)
        return atsi_fail(err, ATSI_EIO, "no file in memory: %s", strerror(errno));
    while (left > 0) {
        ssize_t n = write(fd, text, left);
        if (n <= 0) {
            (void)close(fd);
            return atsi_fail(err, ATSI_EIO, "writing to memory: %s", strerror(errno));
        }
        text += n;
        left -= (size_t)n;
    }
    (void)snprintf(path, 32, "/proc/self/fd/%d", fd);
    return fd;
}

static int read_machine(uint32_t machine, struct atsi_machine *out, struct atsi_err *err)
{
    char path[32];
    int fd = text_file(machines[machine], path, err), rc;
    if (fd < 0)
        return fd;
    rc = atsi_machine_read(path, out, err);
    (void)close(fd);
    return rc;
}

static int read_shape(uint32_t shape, struct atsi_items **out, struct atsi_err *err)
{
    char path[32];
    int fd = text_file(shapes[shape].text, path, err), rc;
    if (fd < 0)
        return fd;
    rc = atsi_items_from_shape(path, out, err);
    (void)close(fd);
    return rc;
}

static void apply_rules(struct atsi_question *q)
{
    struct atsi_item *it = q->items->items;
    it[q->items->n - 1].pinned = ATSI_DEVICE_HOST;
    if (it[1].resident_bytes <= q->budget[ATSI_DEVICE_ACCEL])
        it[1].pinned = ATSI_DEVICE_ACCEL;
}

/* Bytes of everything, and of the largest weight that may move in prefill: a slot. */
static void weigh(const struct atsi_items *items, uint64_t *all, uint64_t *slot)
{
    *all = *slot = 0;
    for (uint32_t i = 0; i < items->n; i++) {
        struct atsi_demand d;
        atsi_work_demand(&items->work[i], 512, 0, 4096, &d);
        *all += (uint64_t)d.resident_bytes;
        if (items->items[i].can_promote && (uint64_t)d.touched_bytes > *slot)
            *slot = (uint64_t)d.touched_bytes;
    }
}

int atsi_kit_question_open(const struct atsi_kit_case *c, struct atsi_question **out,
                           struct atsi_err *err)
{
    struct atsi_conditions base = {.ctx_max = 4096,
                                   .contention = c->contention != 0,
                                   .load_cpu = 1,
                                   .load_gpu = 1,
                                   .load_pcie = 1};
    struct atsi_question_params p = {
        .phase = {base, base}, .max_slots = c->slots, .mix_prompt = 2048, .mix_generated = 128};
    struct atsi_machine m;
    struct atsi_items *items = NULL;
    uint64_t all, slot;
    int rc = read_machine(c->machine, &m, err);
    *out = NULL;
    if (rc == ATSI_OK)
        rc = read_shape(c->shape, &items, err);
    if (rc != ATSI_OK)
        return rc;
    weigh(items, &all, &slot);
    p.temp_bytes = c->slots * slot;
    p.vram_bytes = p.temp_bytes + all * c->budget_pm / 1000;
    p.n_vocab = items->work[items->n - 1].out;
    p.phase[ATSI_PHASE_PREFILL].tokens = 512;
    p.phase[ATSI_PHASE_DECODE].tokens = 1;
    p.phase[ATSI_PHASE_DECODE].ctx = 2048;
    rc = atsi_question_model(items, &m, &p, out, err);
    if (rc != ATSI_OK) {
        atsi_items_free(items);
        return rc;
    }
    if (c->rules)
        apply_rules(*out);
    return ATSI_OK;
}

void atsi_kit_question_close(struct atsi_question *q)
{
    if (q != NULL)
        atsi_items_free(q->items);
    atsi_question_free(q);
}

/* ---------------------------------------------------------------- random ones */
/* xorshift64*: the same series everywhere. */
uint64_t atsi_kit_next(uint64_t *seed)
{
    *seed ^= *seed >> 12;
    *seed ^= *seed << 25;
    *seed ^= *seed >> 27;
    return *seed * UINT64_C(2685821657736338717);
}

static uint64_t draw(uint64_t *seed, uint64_t lo, uint64_t hi)
{
    return lo + (atsi_kit_next(seed) >> 11) % (hi - lo + 1);
}

/* Chains of operators of the small shape "dense", of random sizes; a third with a router. */
int atsi_kit_question_random(uint32_t n, uint64_t seed, struct atsi_question **out,
                             struct atsi_err *err)
{
    static const uint32_t undisturbed[ATSI_N_CLASSES] = {1000, 1000, 1000, 1000};
    const struct atsi_kit_case c = {.budget_pm = ALL, .slots = 2, .contention = seed % 2 == 0};
    uint64_t state = seed * UINT64_C(0x9E3779B97F4A7C15) + 1, all = 0;
    int rc = atsi_kit_question_open(&c, out, err);
    struct atsi_question *q = *out;
    uint32_t was;
    if (rc != ATSI_OK)
        return rc;
    was = q->items->n;
    q->p.n_items = q->items->n = n;
    q->p.n_edges = q->items->n_edges = n - 1;
    for (uint32_t i = 0; i < n; i++) {
        struct atsi_item *it = &q->items->items[i];
        it->resident_bytes = it->touched_bytes = draw(&state, 1, 64) << 20;
        it->role = ATSI_ROLE_FFN;
        it->router = seed % 3 == 0 && i > 2 && i % 3 == 0 ? (int32_t)i - 2 : -1;
        it->can_promote = 1;
        all += it->resident_bytes;
    }
    q->budget[ATSI_DEVICE_ACCEL] = all * draw(&state, 0, 8) / 10;
    for (int f = 0; f < 2; f++) {
        struct atsi_item_cost *host = q->cost[f], *accel = host + was;
        uint64_t tokens = f == ATSI_PHASE_PREFILL ? 40 : 1;
        for (uint32_t i = 0; i < n; i++) {
            uint64_t bytes = q->items->items[i].resident_bytes;
            host[i].run_ns = (bytes / 40 + draw(&state, 2000, 20000)) * tokens;
            host[i].contended_run = host[i].contended_copy =
                c.contention ? (uint32_t)draw(&state, 550, 950) : 1000;
            accel[i] = (struct atsi_item_cost){.run_ns = bytes / 270 + 6000,
                                               .transfer_ns = bytes / 23 + 10000,
                                               .in_ns = draw(&state, 8000, 20000),
                                               .in_copy_ns = 500,
                                               .contended_run = 1000,
                                               .contended_copy = 1000};
            q->touched[f][i] = (double)bytes;
        }
        memmove(host + n, accel, n * sizeof *accel); /* the stride is n now */
        q->slot_depth[f] = (uint32_t)draw(&state, 1, 3);
        q->slot_bytes[f] = 64U << 20;
        q->link[f] = 23;
    }
    atsi_question_slow(q, undisturbed);
    return ATSI_OK;
}
