/* SPDX-License-Identifier: Apache-2.0
 * The options that `simulate` and `plan` have in common. */
#include "cli/simulated.h"

#include "atsinfer/simulate.h"
#include "cli/options.h"
#include "cli/policy_spec.h"
#include "cli/profile.h"
#include "cli/profiles.h"

#include <string.h>

struct cli_simulated cli_simulated = {.generated = 128, .ctx = -1, .slots = 8};

const struct cli_option cli_simulated_options[] = {
    {.name = "--machine",
     .arg = "FILE",
     .help = "machine profile (ini, docs/scheduling.md), the name of a shipped one, measured costs "
             "(atsinfer profile -m), or here: this machine, measured if need be",
     .text = &cli_simulated.machine},
    {.name = "--shape",
     .arg = "FILE",
     .help = "model shape (ini) instead of -m, for models not at hand, or a shipped one's name",
     .text = &cli_simulated.shape},
    {.name = "--vram",
     .arg = "SIZE",
     .help = "device memory for the model, as 6GiB",
     .text = &cli_simulated.vram},
    {.name = "--prefill",
     .arg = "N",
     .help = "tokens of the prompt, 0: 2048",
     .integer = &cli_simulated.prompt,
     .min = 0,
     .max = 1e7},
    {.name = "--decode",
     .arg = "N",
     .help = "tokens generated",
     .integer = &cli_simulated.generated,
     .min = 1,
     .max = 1e7},
    {.name = "--at",
     .arg = "N",
     .help = "context of the decode rounds, -1: after the prompt and half of what is generated",
     .integer = &cli_simulated.ctx,
     .min = -1,
     .max = 1e8},
    {.name = "--slots",
     .arg = "N",
     .help = "temporary slots at most",
     .integer = &cli_simulated.slots,
     .min = 1,
     .max = 64},
    {.name = "--sustained",
     .help = "the CPU's bandwidth when it is warm",
     .flag = &cli_simulated.sustained},
    {.name = "--no-contention",
     .help = "transfers do not disturb the CPU",
     .flag = &cli_simulated.no_contention},
    {.name = NULL},
};

int cli_simulated_read(bool vram_is_list)
{
    struct cli_simulated *s = &cli_simulated;
    int code = cli_profile_files(s->machine, s->shape, s->machine_path, s->model_path);
    if (code != CLI_OK)
        return code;
    if (s->prompt == 0)
        s->prompt = 2048;
    if (s->ctx < 0)
        s->ctx = s->prompt + s->generated / 2;
    return vram_is_list ? CLI_OK : cli_parse_size("--vram", s->vram, &s->vram_bytes);
}

int cli_simulated_measure(uint32_t chunk)
{
    const struct cli_simulated *s = &cli_simulated;
    if (s->shape != NULL || strcmp(s->machine_path, ATSI_MACHINE_HERE) != 0)
        return CLI_OK;
    return profile_costs_ready(s->model_path, chunk);
}
