/* policy_greedy: the accelerator gets what gains most there, per byte or at all, while it fits.
 * Nothing is moved during rounds.  Written by `atsinfer policy new`; change it as you like. */
#include <atsinfer/plugin.h>
#include <atsinfer/policy.h>

#include <stdlib.h>
#include <string.h>

enum { HOST = 0, ACCEL = 1 }; /* devices are numbers; 0 is always the host's CPU */

static const struct atsi_host *host; /* what the core lends to plugins: settings, log, clock */

/* Policies allocate nothing: the core lends so many bytes of scratch for every question. */
struct candidate {
    double worth;
    uint32_t item;
};

static size_t scratch_bytes(uint32_t n_items)
{
    return n_items * sizeof(struct candidate);
}

/* The best first; equals in order of execution, so that the answer never depends on chance. */
static int better(const void *a, const void *b)
{
    const struct candidate *x = a, *y = b;
    if (x->worth != y->worth)
        return x->worth > y->worth ? -1 : 1;
    return x->item < y->item ? -1 : 1;
}

/* Nanoseconds a request is shorter when item i runs on the accelerator.  Costs are tables of
 * [device][item], one for a round of prefill and one for a round of decode. */
static double gain(const struct atsi_problem *in, uint32_t i)
{
    uint32_t accel = ACCEL * in->n_items + i, round = in->prefill_tokens;
    double chunks = round != 0 ? (double)in->mix_prompt / round : 1;
    double decode = (double)in->decode[i].run_ns - (double)in->decode[accel].run_ns;
    double prefill = (double)in->prefill[i].run_ns - (double)in->prefill[accel].run_ns;
    return in->mix_generated * decode + chunks * prefill;
}

/* Asked once, before the first round: where does each item's weight live? */
static int place(const struct atsi_problem *in, struct atsi_placement *out, struct atsi_err *err)
{
    const char *how = host->param_get(host->ctx, "policy_greedy", "algorithm");
    int per_byte = how == NULL || strcmp(how, "density") == 0;
    struct candidate *list = in->scratch;
    uint64_t left = in->n_devices > ACCEL ? in->budget_bytes[ACCEL] : 0;
    uint32_t n = 0;
    for (uint32_t i = 0; i < in->n_items; i++) {
        const struct atsi_item *item = in->items[i];
        double bytes = item->resident_bytes > 0 ? (double)item->resident_bytes : 1;
        /* Rules of the user are constraints.  What they pin is paid from the budget first. */
        out->device[i] = item->pinned >= 0 ? item->pinned : HOST;
        if (out->device[i] == ACCEL) {
            if (item->resident_bytes > left)
                return atsi_fail(err, ATSI_ENOFIT, "policy_greedy: no room for %s", item->name);
            left -= item->resident_bytes;
        } else if (item->pinned < 0 && in->n_devices > ACCEL && gain(in, i) > 0) {
            list[n++] = (struct candidate){per_byte ? gain(in, i) / bytes : gain(in, i), i};
        }
    }
    qsort(list, n, sizeof *list, better);
    for (uint32_t k = 0; k < n; k++) {
        uint64_t bytes = in->items[list[k].item]->resident_bytes;
        if (bytes > left)
            continue; /* a smaller one may still fit */
        out->device[list[k].item] = ACCEL;
        left -= bytes;
    }
    for (uint32_t i = 0; i < in->n_items; i++) /* of experts: all, or none */
        out->expert_slots[i] = out->device[i] == ACCEL ? in->items[i]->n_experts : 0;
    return ATSI_OK;
}

/* Asked before every round: what runs where, and which weights are moved for it?  Here each item
 * runs where it lives.  A plan that says so already may stay in force. */
static int schedule(const struct atsi_round *in, struct atsi_schedule *out, struct atsi_err *err)
{
    size_t bytes = out->n_items * sizeof *out->device;
    (void)err; /* for atsi_fail(), when there is no answer */
    out->keep = in->in_force != NULL && memcmp(in->in_force, in->placed, bytes) == 0;
    out->n_transfers = 0;
    memcpy(out->device, in->placed, bytes);
    return ATSI_OK;
}

static const struct atsi_policy_ops ops = {.struct_size = sizeof ops,
                                           .scratch_bytes = scratch_bytes,
                                           .place = place,
                                           .schedule = schedule};

/* Settings: plugin.policy_greedy.algorithm, or `--policy policy_greedy:gain`. */
static const struct atsi_param algorithm = {.struct_size = sizeof algorithm,
                                            .type = ATSI_PARAM_CHOICE,
                                            .key = "algorithm",
                                            .def = "density",
                                            .choices = "density|gain",
                                            .help = "What goes first: gain per byte, or gain."};
static const struct atsi_param *const params[] = {&algorithm, NULL};
static const struct atsi_component policy = {
    .struct_size = sizeof policy, .kind = ATSI_KIND_POLICY, .name = "policy_greedy", .ops = &ops};
static const struct atsi_component *const components[] = {&policy, NULL};
static const struct atsi_plugin plugin = {.struct_size = sizeof plugin,
                                          .magic = ATSI_PLUGIN_MAGIC,
                                          .abi_major = ATSI_ABI_MAJOR,
                                          .abi_minor = ATSI_ABI_MINOR,
                                          .name = "policy_greedy",
                                          .version = "0.1.0",
                                          .license = "Apache-2.0",
                                          .params = params,
                                          .components = components};

/* The one symbol a plugin exports. */
const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *lent, const char **why)
{
    (void)why; /* a sentence, if this returns NULL: not for this machine */
    host = lent;
    return &plugin;
}
