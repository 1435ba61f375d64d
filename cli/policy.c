/* SPDX-License-Identifier: Apache-2.0
 *
 * `atsinfer policy`: tools for scheduling policies.  Finds the subcommand and hands over.
 */
#include "cli/policy.h"

#include <string.h>

static const struct cli_command *const commands[] = {
    &policy_cmd_solve, &policy_cmd_latency, &policy_cmd_resched, &policy_cmd_new, &policy_cmd_test,
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int help(FILE *to)
{
    (void)fprintf(to, "usage: %s\n\n%s:\n", cli_cmd_policy.usage, cli_cmd_policy.summary);
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    (void)fprintf(to, "\n`atsinfer policy SUBCOMMAND --help` describes each.\n");
    return to == stdout ? cli_finish_stdout(CLI_OK) : CLI_USAGE;
}

static int run(int argc, char **argv)
{
    if (argc < 2)
        return help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0)
        return help(stdout);
    if (strcmp(argv[1], "conform") == 0)
        return policy_cmd_test.run(argc - 1, argv + 1);
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i]->run(argc - 1, argv + 1);
    return cli_fail(CLI_USAGE, "unknown subcommand policy %s; `atsinfer policy --help` lists them",
                    argv[1]);
}

const struct cli_command cli_cmd_policy = {
    .name = "policy",
    .summary = "write, test and try scheduling policies",
    .usage = "atsinfer policy SUBCOMMAND [options]",
    .run = run,
};
