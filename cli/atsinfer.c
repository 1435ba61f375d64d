/* SPDX-License-Identifier: Apache-2.0
 *
 * The command: finds the subcommand and hands over.
 */
#include "cli/options.h"

#include <locale.h>
#include <stdlib.h>
#include <string.h>

static const struct cli_command *const commands[] = {
#ifdef ATSINFER_LEAN /* scripts/lean_build.sh: what needs no library but libc */
    &cli_cmd_bench,
    &cli_cmd_kernels,
#else
    &cli_cmd_run,     &cli_cmd_chat,   &cli_cmd_perplexity, &cli_cmd_logits,   &cli_cmd_tokenize,
    &cli_cmd_inspect, &cli_cmd_bench,  &cli_cmd_kernels,    &cli_cmd_plugins,  &cli_cmd_topology,
    &cli_cmd_config,  &cli_cmd_doctor, &cli_cmd_policy,     &cli_cmd_simulate, &cli_cmd_template,
    &cli_cmd_profile, &cli_cmd_plan,
#endif
};
enum { N_COMMANDS = sizeof commands / sizeof commands[0] };

static int print_help(FILE *to)
{
    (void)fprintf(to, "usage: atsinfer SUBCOMMAND [options]\n\n"
                      "Runs language models (GGUF) on this machine.\n\nsubcommands:\n");
    for (size_t i = 0; i < N_COMMANDS; i++)
        (void)fprintf(to, "  %-10s %s\n", commands[i]->name, commands[i]->summary);
    (void)fprintf(to,
                  "\n`atsinfer SUBCOMMAND --help` describes each.  Exit codes: 0 ok, 1 run error, "
                  "2 usage or\nconfiguration, 3 does not fit or no device, 4 self-test failed, "
                  "130 interrupted.\n");
    return to == stdout ? cli_finish_stdout(CLI_OK) : CLI_USAGE;
}

static int print_version(void)
{
    (void)printf("atsinfer %s\nplugin interface %u.%u\ncompiler %s\n", atsi_version(),
                 ATSI_ABI_MAJOR, ATSI_ABI_MINOR, __VERSION__);
    return cli_finish_stdout(CLI_OK);
}

static int unknown_command(const char *word)
{
    const char *best = NULL;
    uint32_t distance = 3;
    for (size_t i = 0; i < N_COMMANDS; i++) {
        uint32_t d = atsi_edit_distance(word, commands[i]->name);
        if (d < distance) {
            distance = d;
            best = commands[i]->name;
        }
    }
    if (best != NULL)
        return cli_fail(CLI_USAGE, "unknown subcommand %s; did you mean %s?", word, best);
    return cli_fail(CLI_USAGE, "unknown subcommand %s; `atsinfer --help` lists them", word);
}

static int dispatch(int argc, char **argv)
{
    if (argc < 2)
        return print_help(stderr);
    if (strcmp(argv[1], "--help") == 0 || strcmp(argv[1], "-h") == 0 ||
        strcmp(argv[1], "help") == 0)
        return print_help(stdout);
    if (strcmp(argv[1], "--version") == 0)
        return print_version();
    for (size_t i = 0; i < N_COMMANDS; i++)
        if (strcmp(argv[1], commands[i]->name) == 0)
            return commands[i]->run(argc - 1, argv + 1);
    return unknown_command(argv[1]);
}

int main(int argc, char **argv)
{
    int code;
    cli_catch_signals();
    code = dispatch(argc, argv);
    for (size_t i = 0; i < cli_common.n_overrides; i++)
        free(cli_common.overrides[i]);
    return code;
}
