/* SPDX-License-Identifier: Apache-2.0
 *
 * Parameters of policy_static.
 */
#include "sched/settings.h"
#include "static.h"

static const struct atsi_param p_mode = {
    .struct_size = sizeof p_mode,
    .type = ATSI_PARAM_CHOICE,
    .key = "mode",
    .def = "expert",
    .choices = "layer|expert|stream|density|alg1",
    .help = "Placement: last whole layers; all but the experts of the first layers; layers, and "
            "the rest streamed every round; gain per byte; the paper's Algorithm 1."};
static const struct atsi_param p_gpu_layers = {
    .struct_size = sizeof p_gpu_layers,
    .type = ATSI_PARAM_INT,
    .key = "n_gpu_layers",
    .def = "-1",
    .choices = "-1..100000",
    .help = "Layer, expert, stream: at most so many last layers on the accelerator, the head "
            "counting as one; -1: as many as fit."};
static const struct atsi_param p_cpu_moe = {
    .struct_size = sizeof p_cpu_moe,
    .type = ATSI_PARAM_INT,
    .key = "n_cpu_moe",
    .def = "-1",
    .choices = "-1..100000",
    .help = "Layer, expert, stream: the experts of so many first layers stay on the host; -1: "
            "those that do not fit."};
static const struct atsi_param p_stream_min = {
    .struct_size = sizeof p_stream_min,
    .type = ATSI_PARAM_INT,
    .key = "prefill_stream_min",
    .def = "32",
    .choices = "0..1000000000",
    .unit = "tokens",
    .help = "Prefill rounds of so many tokens stream every weight of the host; 0: never."};
static const struct atsi_param p_overlap = {
    .struct_size = sizeof p_overlap,
    .type = ATSI_PARAM_CHOICE,
    .key = "overlap",
    .def = "auto",
    .choices = "auto|on|off",
    .help =
        "Whether a weight may be on its way while earlier operators run; auto: in mode stream."};
const struct atsi_param *const static_params[] = {&p_mode,       &p_gpu_layers, &p_cpu_moe,
                                                  &p_stream_min, &p_overlap,    NULL};

static int read_all(const struct sched_settings *from, void *kept, struct atsi_err *err)
{
    struct static_settings *s = kept;
    double layers = -1, moe = -1, min = 0;
    int mode = 0, overlap = 0, rc = sched_settings_choice(from, &p_mode, &mode, err);
    if (rc == ATSI_OK)
        rc = sched_settings_number(from, &p_gpu_layers, &layers, err);
    if (rc == ATSI_OK)
        rc = sched_settings_number(from, &p_cpu_moe, &moe, err);
    if (rc == ATSI_OK)
        rc = sched_settings_number(from, &p_stream_min, &min, err);
    if (rc == ATSI_OK)
        rc = sched_settings_choice(from, &p_overlap, &overlap, err);
    if (rc != ATSI_OK)
        return rc;
    s->mode = (enum static_mode)mode;
    s->n_gpu_layers = (int64_t)layers;
    s->n_cpu_moe = (int64_t)moe;
    s->stream_min = (uint32_t)min;
    s->overlap = overlap == 0 ? s->mode == STATIC_STREAM : overlap == 1;
    return ATSI_OK;
}

static struct static_settings settings;
static struct sched_settings state = {.plugin = "policy_static",
                                      .read = read_all,
                                      .kept = &settings,
                                      .size = sizeof settings,
                                      .lock = PTHREAD_MUTEX_INITIALIZER};

void static_settings_host(const struct atsi_host *host)
{
    sched_settings_host(&state, host);
}

void static_settings_again(void)
{
    sched_settings_again(&state);
}

int static_settings_get(struct static_settings *out, struct atsi_err *err)
{
    return sched_settings_get(&state, out, err);
}
