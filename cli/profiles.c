/* SPDX-License-Identifier: Apache-2.0
 * Finding shipped machine profiles and model shapes: installed, or in the source tree. */
#include "cli/profiles.h"

#include "atsinfer/simulate.h"
#include "cli/options.h"

#include <dirent.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

static int with_ending(const struct dirent *e)
{
    size_t n = strlen(e->d_name);
    return n > 4 && strcmp(e->d_name + n - 4, ".ini") == 0 ? 1 : 0;
}

/* The names there are, separated by commas, and the one most like `word`. */
static void list_names(const char *kind, const char *word, char *list, size_t size, char best[64])
{
    char dir[PATH_MAX], name[64];
    struct dirent **entries = NULL;
    size_t used = 0;
    uint32_t distance = 6;
    int n;
    list[0] = best[0] = '\0';
    (void)snprintf(name, sizeof name, "profiles/%s", kind);
    n = cli_share_path(name, dir) ? scandir(dir, &entries, with_ending, alphasort) : 0;
    for (int i = 0; i < n; i++) {
        size_t stem = strlen(entries[i]->d_name) - 4;
        uint32_t d;
        int put;
        (void)snprintf(name, sizeof name, "%.*s", (int)stem, entries[i]->d_name);
        put = snprintf(list + used, size - used, "%s%s", used > 0 ? ", " : "", name);
        used += put > 0 && (size_t)put < size - used ? (size_t)put : 0;
        list[used] = '\0'; /* a name that does not fit is left out whole */
        d = atsi_edit_distance(word, name);
        if (d < distance) {
            distance = d;
            (void)snprintf(best, 64, "%s", name);
        }
        free(entries[i]);
    }
    free(entries);
}

/* "here" is a machine, unless a file has that name. */
static bool is_here(const char *word)
{
    return strcmp(word, ATSI_MACHINE_HERE) == 0 && access(word, F_OK) != 0;
}

int cli_profile_find(const char *kind, const char *option, const char *word, char out[PATH_MAX])
{
    char rest[96], list[600], best[64];
    int n;
    if (access(word, F_OK) == 0) {
        n = snprintf(out, PATH_MAX, "%s", word);
        return n < PATH_MAX ? CLI_OK : cli_fail(CLI_USAGE, "%s: the path is too long", option);
    }
    n = snprintf(rest, sizeof rest, "profiles/%s/%s.ini", kind, word);
    if (strchr(word, '/') == NULL && n > 0 && n < (int)sizeof rest && cli_share_path(rest, out))
        return CLI_OK;
    list_names(kind, word, list, sizeof list, best);
    return cli_fail(CLI_USAGE,
                    "%s %.200s: no such file, and no shipped profile%s%s%s (there are: %s)", option,
                    word, best[0] != '\0' ? "; did you mean \"" : "", best,
                    best[0] != '\0' ? "\"?" : "", list[0] != '\0' ? list : "none");
}

int cli_profile_files(const char *machine, const char *shape, char machine_out[PATH_MAX],
                      char model_out[PATH_MAX])
{
    const char *file = cli_option_value("model.path"), *path;
    int n, code;
    if (machine == NULL)
        return cli_fail(CLI_USAGE, "--machine is needed: a file, a name such as laptop-rtx3060, or "
                                   "\"here\" for this machine as measured");
    if (shape == NULL && file == NULL)
        return cli_fail(CLI_USAGE, "-m MODEL or --shape SHAPE is needed");
    if (shape != NULL && file != NULL)
        return cli_fail(CLI_USAGE, "-m and --shape both name a model: give one");
    if (is_here(machine)) {
        (void)snprintf(machine_out, PATH_MAX, "%s", ATSI_MACHINE_HERE);
        code = CLI_OK;
    } else {
        code = cli_profile_find("machines", "--machine", machine, machine_out);
    }
    if (code != CLI_OK || shape != NULL)
        return code != CLI_OK ? code : cli_profile_find("models", "--shape", shape, model_out);
    path = cli_find_model(file);
    n = path != NULL ? snprintf(model_out, PATH_MAX, "%s", path) : 0;
    return n > 0 && n < PATH_MAX ? CLI_OK : CLI_USAGE;
}
