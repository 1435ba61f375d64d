/* SPDX-License-Identifier: Apache-2.0
 *
 * Feeds every file of the folders named on the command line to a fuzz target, so that the corpus is
 * a regression test with any compiler.  Fails when there is nothing to replay. */
#include <dirent.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

/* -1: the file cannot be read. */
static int replay(const char *path)
{
    FILE *f = fopen(path, "rb");
    uint8_t *data = NULL;
    long size = -1;
    int rc = -1;
    if (f == NULL)
        return -1;
    if (fseek(f, 0, SEEK_END) == 0 && (size = ftell(f)) >= 0 && fseek(f, 0, SEEK_SET) == 0) {
        data = malloc((size_t)size + (size == 0)); /* exactly as long: ASan sees one byte more */
        if (data != NULL && fread(data, 1, (size_t)size, f) == (size_t)size)
            rc = LLVMFuzzerTestOneInput(data, (size_t)size);
    }
    free(data);
    (void)fclose(f);
    return rc;
}

static int replay_folder(const char *folder, unsigned *n_files)
{
    DIR *dir = opendir(folder);
    const struct dirent *e;
    char path[1024];
    if (dir == NULL)
        return -1;
    while ((e = readdir(dir)) != NULL) {
        if (e->d_name[0] == '.')
            continue;
        if (snprintf(path, sizeof path, "%s/%s", folder, e->d_name) >= (int)sizeof path ||
            replay(path) != 0) {
            (void)fprintf(stderr, "replay: %s/%s failed\n", folder, e->d_name);
            (void)closedir(dir);
            return -1;
        }
        ++*n_files;
    }
    return closedir(dir);
}

int main(int argc, char **argv)
{
    unsigned n_files = 0;
    for (int i = 1; i < argc; i++)
        if (replay_folder(argv[i], &n_files) != 0)
            return EXIT_FAILURE;
    printf("%u files\n", n_files);
    return n_files > 0 ? EXIT_SUCCESS : EXIT_FAILURE;
}
