/* SPDX-License-Identifier: Apache-2.0
 *
 * Model names against made-up caches: which file a name means, what is said when there is none, and
 * what a hostile cache can do (nothing).
 */
#include "cli/resolve.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cmocka.h>

#define COMMIT "0123456789abcdef0123456789abcdef01234567"
#define OTHER "fedcba9876543210fedcba9876543210fedcba98"
#define HEX "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaabbbbbbbbbbbbbbbbbbbbbbbbbbbbbbbb"
#define HUB "cache/huggingface/hub/"
#define REPO HUB "models--ada--Tiny-GGUF/"

static char said[4096];

static int enter(void **state)
{
    static const char *const variables[] = {"LLAMA_CACHE", "HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE",
                                            "HF_HOME", "OLLAMA_MODELS"};
    for (size_t i = 0; i < sizeof variables / sizeof variables[0]; i++)
        (void)unsetenv(variables[i]);
    return scratch_enter(state);
}

static int resolve(const char *name, char path[PATH_MAX])
{
    char *text = NULL;
    size_t n;
    FILE *say = open_memstream(&text, &n);
    int rc;
    assert_non_null(say);
    path[0] = '\0';
    rc = cli_resolve(name, path, say);
    assert_int_equal(fclose(say), 0);
    (void)snprintf(said, sizeof said, "%s", text);
    free(text);
    if (rc == ATSI_OK)
        assert_string_equal(said, "");
    else
        assert_string_not_equal(said, "");
    return rc;
}

static void expect_file(const char *name, const char *relative)
{
    char path[PATH_MAX];
    if (resolve(name, path) != ATSI_OK)
        fail_msg("%s: %s", name, said);
    assert_string_equal(path, scratch_path(relative));
}

static void expect_failure(const char *name, int status, const char *words)
{
    char path[PATH_MAX];
    assert_int_equal(resolve(name, path), status);
    if (strstr(said, words) == NULL)
        fail_msg("\"%s\" lacks \"%s\"", said, words);
}

/* A file of the hub's cache as its tools leave it: a blob and a link to it. */
static void add_linked(const char *snapshot, const char *file)
{
    char blob[128], rel[PATH_MAX];
    scratch_mkdir(REPO "blobs");
    (void)snprintf(blob, sizeof blob, REPO "blobs/%zx", (size_t)strlen(file) * 31 + file[0]);
    scratch_write(blob, "GGUF");
    (void)snprintf(rel, sizeof rel, REPO "snapshots/%s/%s", snapshot, file);
    scratch_write(rel, ""); /* makes the folders */
    assert_int_equal(unlink(scratch_path(rel)), 0);
    assert_int_equal(symlink(scratch_path(blob), scratch_path(rel)), 0);
}

static void add_repo(void)
{
    scratch_write(REPO "refs/main", COMMIT);
    add_linked(COMMIT, "tiny-Q8_0.gguf");
    add_linked(COMMIT, "tiny-Q4_K_M.gguf");
    add_linked(COMMIT, "tiny-IQ4_0.gguf");
    add_linked(COMMIT, "aaa-mmproj-Q4_K_M.gguf");
    add_linked(COMMIT, "BF16/tiny-BF16-00002-of-00002.gguf");
    add_linked(COMMIT, "BF16/tiny-BF16-00001-of-00002.gguf");
    add_linked(COMMIT, "README.md");
}

/* ---------------------------------------------------------------- hub */
static void test_plain_file(void **state)
{
    char path[PATH_MAX];
    (void)state;
    assert_int_equal(resolve("some/where.gguf", path), ATSI_OK);
    assert_string_equal(path, "some/where.gguf");
}

static void test_quantizations(void **state)
{
    (void)state;
    add_repo();
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" COMMIT "/tiny-Q4_K_M.gguf");
    expect_file("hf:ada/Tiny-GGUF:latest", REPO "snapshots/" COMMIT "/tiny-Q4_K_M.gguf");
    expect_file("hf:ada/Tiny-GGUF:q8_0", REPO "snapshots/" COMMIT "/tiny-Q8_0.gguf");
    expect_file("hf:ada/Tiny-GGUF:bf16",
                REPO "snapshots/" COMMIT "/BF16/tiny-BF16-00001-of-00002.gguf");
    expect_file("hf:ada/Tiny-GGUF:tiny-Q8_0.gguf", REPO "snapshots/" COMMIT "/tiny-Q8_0.gguf");
    /* part of another word is no match */
    expect_failure("hf:ada/Tiny-GGUF:F16", ATSI_ENOENT, "no model file F16 of it");
    expect_failure("hf:ada/Tiny-GGUF:Q4_0", ATSI_ENOENT, "tiny-Q8_0.gguf");
}

static void test_order_without_a_quantization(void **state)
{
    (void)state;
    scratch_write(REPO "refs/main", COMMIT "\n");
    add_linked(COMMIT, "tiny-Q6_K.gguf");
    add_linked(COMMIT, "tiny-Q5_K_M.gguf");
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" COMMIT "/tiny-Q5_K_M.gguf");
    add_linked(COMMIT, "tiny-Q8_0.gguf");
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" COMMIT "/tiny-Q8_0.gguf");
    add_linked(COMMIT, "tiny-Q4_K_M.gguf");
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" COMMIT "/tiny-Q4_K_M.gguf");
}

static void test_main_before_other_snapshots(void **state)
{
    (void)state;
    add_linked(OTHER, "tiny-Q4_K_M.gguf");
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" OTHER "/tiny-Q4_K_M.gguf"); /* no refs */
    add_linked(COMMIT, "tiny-Q4_K_M.gguf");
    scratch_write(REPO "refs/main", OTHER);
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" OTHER "/tiny-Q4_K_M.gguf");
    scratch_write(REPO "refs/main", COMMIT);
    expect_file("hf:ada/Tiny-GGUF", REPO "snapshots/" COMMIT "/tiny-Q4_K_M.gguf");
    add_linked(OTHER, "tiny-Q2_K.gguf"); /* only the older snapshot has it */
    expect_file("hf:ada/Tiny-GGUF:Q2_K", REPO "snapshots/" OTHER "/tiny-Q2_K.gguf");
}

static void test_places(void **state)
{
    static const struct {
        const char *variable, *value, *below;
    } places[] = {{"LLAMA_CACHE", "one", "one"},
                  {"HF_HUB_CACHE", "two", "two"},
                  {"HUGGINGFACE_HUB_CACHE", "three", "three"},
                  {"HF_HOME", "four", "four/hub"},
                  {"XDG_CACHE_HOME", "five", "five/huggingface/hub"},
                  {"HOME", "six", "six/.cache/huggingface/hub"}};
    enum { N = sizeof places / sizeof places[0] };
    char file[N][256];
    (void)state;
    for (int i = N - 1; i >= 0; i--) { /* a stronger place each time */
        (void)snprintf(file[i], sizeof file[i],
                       "%s/models--ada--Tiny-GGUF/snapshots/" COMMIT "/tiny-Q4_K_M.gguf",
                       places[i].below);
        scratch_write(file[i], "GGUF");
        assert_int_equal(setenv(places[i].variable, scratch_path(places[i].value), 1), 0);
        expect_file("hf:ada/Tiny-GGUF", file[i]);
    }
}

static void test_other_letter_case(void **state)
{
    (void)state;
    add_repo();
    expect_file("hf:Ada/tiny-gguf:Q8_0", REPO "snapshots/" COMMIT "/tiny-Q8_0.gguf");
}

static void test_flat_cache(void **state)
{
    (void)state;
    scratch_write("cache/llama.cpp/ada_Tiny-GGUF_tiny-Q8_0.gguf", "GGUF");
    scratch_write("cache/llama.cpp/ada_Tiny-GGUF_tiny-Q5_0.gguf", "GGUF");
    expect_file("hf:ada/Tiny-GGUF", "cache/llama.cpp/ada_Tiny-GGUF_tiny-Q8_0.gguf");
    expect_file("hf:ada/Tiny-GGUF:Q5_0", "cache/llama.cpp/ada_Tiny-GGUF_tiny-Q5_0.gguf");
    scratch_write("cache/llama.cpp/manifest=ada=Tiny-GGUF=latest.json",
                  "{\"ggufFile\":{\"rfilename\":\"tiny-Q5_0.gguf\"}}");
    expect_file("hf:ada/Tiny-GGUF", "cache/llama.cpp/ada_Tiny-GGUF_tiny-Q5_0.gguf");
    expect_failure("hf:ada/Tiny-GGUF:Q2_K", ATSI_ENOENT, "ada_Tiny-GGUF_tiny-Q8_0.gguf");
    /* a manifest that is broken, or names what is not there, does not get in the way */
    scratch_write("cache/llama.cpp/manifest=ada=Tiny-GGUF=latest.json", "{\"ggufFile\":[");
    expect_file("hf:ada/Tiny-GGUF", "cache/llama.cpp/ada_Tiny-GGUF_tiny-Q8_0.gguf");
    scratch_write("cache/llama.cpp/manifest=ada=Tiny-GGUF=latest.json",
                  "{\"ggufFile\":{\"rfilename\":\"../../../secret\"}}");
    expect_file("hf:ada/Tiny-GGUF", "cache/llama.cpp/ada_Tiny-GGUF_tiny-Q8_0.gguf");
}

static void test_not_there(void **state)
{
    (void)state;
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT, "is in no local cache");
    assert_non_null(
        strstr(said, scratch_path("cache/huggingface/hub"))); /* searched, and said so */
    add_repo();
    expect_failure("hf:ada/Tiny-GUFF:Q8_0", ATSI_ENOENT, "similar: ada/Tiny-GGUF");
    assert_non_null(strstr(said, "hf download ada/Tiny-GUFF --include '*Q8_0*'"));
    expect_failure("hf:ada/Tiny-GGUF:Q3_K_S", ATSI_ENOENT, "files there: BF16/tiny-BF16-00001");
}

static void test_blob_gone(void **state)
{
    (void)state;
    scratch_mkdir(REPO "snapshots/" COMMIT);
    assert_int_equal(
        symlink("../../blobs/gone", scratch_path(REPO "snapshots/" COMMIT "/tiny-Q4_K_M.gguf")), 0);
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT,
                   "not complete, download again: tiny-Q4_K_M.gguf");
}

static void test_bad_names(void **state)
{
    static const char *const names[] = {
        "hf:",       "hf:tiny",       "hf:/tiny",  "hf:ada/",     "hf:ada/a/b",   "hf:../tiny",
        "hf:ada/..", "hf:ada/t:../x", "hf:ada/t:", "hf:a b/tiny", "hf:ada/t:a:b", "hf:ada/\n"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_failure(names[i], ATSI_ECONF, "expected USER/REPO");
}

static void test_hostile_hub(void **state)
{
    char big[8192], path[PATH_MAX];
    (void)state;
    /* a reference that leads out, one that is far too long, a folder in its place */
    scratch_write("cache/secret/tiny-Q4_K_M.gguf", "GGUF");
    scratch_write(REPO "refs/main", "../../../../secret");
    scratch_mkdir(REPO "snapshots");
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT, "no model file");
    memset(big, 'a', sizeof big);
    scratch_write_bytes(REPO "refs/main", big, sizeof big);
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT, "no model file");
    /* folders that lead round in circles, and a folder named like a model */
    scratch_mkdir(REPO "snapshots/" COMMIT "/dir-Q4_K_M.gguf");
    assert_int_equal(symlink("..", scratch_path(REPO "snapshots/" COMMIT "/loop")), 0);
    assert_int_equal(symlink("self.gguf", scratch_path(REPO "snapshots/" COMMIT "/self.gguf")), 0);
    assert_int_equal(mkfifo(scratch_path(REPO "snapshots/" COMMIT "/pipe-Q4_K_M.gguf"), 0600), 0);
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT, "self.gguf");
    assert_int_equal(mkfifo(scratch_path("cache/pipe"), 0600), 0);
    assert_int_equal(unlink(scratch_path(REPO "refs/main")), 0);
    assert_int_equal(symlink(scratch_path("cache/pipe"), scratch_path(REPO "refs/main")), 0);
    expect_failure("hf:ada/Tiny-GGUF", ATSI_ENOENT, "self.gguf"); /* and does not hang */
    /* control characters of a name do not reach the terminal */
    scratch_write(REPO "snapshots/" COMMIT "/\x1b[31m.gguf", "GGUF");
    expect_failure("hf:ada/Tiny-GGUF:Q8_0", ATSI_ENOENT, "?[31m.gguf");
    assert_null(strchr(said, '\x1b'));
    assert_int_equal(resolve("hf:ada/Tiny-GGUF", path), ATSI_OK); /* it is a file after all */
}

/* ---------------------------------------------------------------- Ollama */
#define MANIFEST ".ollama/models/manifests/registry.ollama.ai/library/"
#define BLOB ".ollama/models/blobs/sha256-" HEX

static void add_ollama(const char *manifest, const char *digest, int size)
{
    char text[512];
    (void)snprintf(text, sizeof text,
                   "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.license\","
                   "\"digest\":\"sha256:00\"},{\"mediaType\":"
                   "\"application/vnd.ollama.image.model\",\"digest\":\"%s\",\"size\":%d}]}",
                   digest, size);
    scratch_write(manifest, text);
    scratch_write(BLOB, "GGUF");
}

static void test_ollama(void **state)
{
    char path[PATH_MAX];
    (void)state;
    add_ollama(MANIFEST "ada-tiny/latest", "sha256:" HEX, 4);
    add_ollama(MANIFEST "ada-tiny/1b", "sha256:" HEX, 4);
    add_ollama(".ollama/models/manifests/registry.ollama.ai/ada/own/latest", "sha256:" HEX, 4);
    add_ollama(".ollama/models/manifests/hf.example/ada/Tiny-GGUF/Q8_0", "sha256:" HEX, 4);
    expect_file("ollama:ada-tiny", BLOB);
    expect_file("ollama:ada-tiny:1b", BLOB);
    expect_file("ollama:library/ada-tiny:1b", BLOB);
    expect_file("ollama:ada/own", BLOB);
    expect_file("ollama:hf.example/ada/Tiny-GGUF:Q8_0", BLOB);
    expect_file("ada-tiny:1b", BLOB);
    /* a file of that name goes first; a name without a tag is a file name */
    assert_int_equal(resolve("ada-tiny", path), ATSI_OK);
    assert_string_equal(path, "ada-tiny");
    scratch_write("ada-tiny:1b", "GGUF");
    assert_int_equal(resolve("ada-tiny:1b", path), ATSI_OK);
    assert_string_equal(path, "ada-tiny:1b");
    /* not in the store: an ordinary missing file */
    assert_int_equal(resolve("ada-tiny:70b", path), ATSI_OK);
    assert_string_equal(path, "ada-tiny:70b");
}

static void test_ollama_variable(void **state)
{
    (void)state;
    scratch_write("store/manifests/registry.ollama.ai/library/ada-tiny/latest",
                  "{\"layers\":[{\"mediaType\":\"application/vnd.ollama.image.model\","
                  "\"digest\":\"sha256:" HEX "\"}]}");
    scratch_write("store/blobs/sha256-" HEX, "GGUF");
    assert_int_equal(setenv("OLLAMA_MODELS", scratch_path("store"), 1), 0);
    expect_file("ollama:ada-tiny", "store/blobs/sha256-" HEX);
}

static void test_ollama_not_there(void **state)
{
    (void)state;
    expect_failure("ollama:ada-tiny", ATSI_ENOENT, "ollama pull ada-tiny");
    assert_non_null(strstr(said, scratch_path(".ollama/models")));
    add_ollama(MANIFEST "ada-tiny/1b", "sha256:" HEX, 4);
    expect_failure("ollama:ada-tiny:2b", ATSI_ENOENT, "tags there: 1b");
    expect_failure("ollama:ada-tinny", ATSI_ENOENT, "similar: ada-tiny");
}

static void test_ollama_damaged(void **state)
{
    static char big[(4 << 20) + 2];
    (void)state;
    add_ollama(MANIFEST "t/latest", "sha256:" HEX, 5);
    expect_failure("ollama:t", ATSI_EFORMAT, "has 4 bytes, the manifest says 5");
    assert_int_equal(unlink(scratch_path(BLOB)), 0);
    expect_failure("ollama:t", ATSI_EFORMAT, "is not there");
    add_ollama(MANIFEST "t/latest", "sha256:../../../../etc/passwd", 4);
    expect_failure("ollama:t", ATSI_EFORMAT, "64 hexadecimal digits");
    add_ollama(MANIFEST "t/latest", "sha256:" HEX "/../x", 4);
    expect_failure("ollama:t", ATSI_EFORMAT, "64 hexadecimal digits");
    scratch_write(MANIFEST "t/latest", "{\"layers\":[{\"mediaType\":7,\"digest\":{}},3]}");
    expect_failure("ollama:t", ATSI_EFORMAT, "names no GGUF model");
    scratch_write(MANIFEST "t/latest", "[]");
    expect_failure("ollama:t", ATSI_EFORMAT, "names no GGUF model");
    scratch_write(MANIFEST "t/latest", "{");
    expect_failure("ollama:t", ATSI_EFORMAT, "t/latest:1");
    memset(big, ' ', sizeof big);
    scratch_write_bytes(MANIFEST "t/latest", big, sizeof big);
    expect_failure("ollama:t", ATSI_EFORMAT, "larger than 4 MiB");
    assert_int_equal(unlink(scratch_path(MANIFEST "t/latest")), 0);
    scratch_mkdir(MANIFEST "t/latest");
    expect_failure("ollama:t", ATSI_EFORMAT, "not a regular file");
}

static void test_ollama_bad_names(void **state)
{
    static const char *const names[] = {"ollama:",         "ollama:..", "ollama:a/../b",
                                        "ollama::x",       "ollama:a:", "ollama:a:..",
                                        "ollama:a/b/c/d",  "ollama:/a", "ollama:a:b:c",
                                        "ollama:../../x:y"};
    (void)state;
    for (size_t i = 0; i < sizeof names / sizeof names[0]; i++)
        expect_failure(names[i], ATSI_ECONF, "expected ollama:NAME");
}

static void test_long_names(void **state)
{
    static char name[PATH_MAX + 64];
    (void)state;
    memset(name, 'x', sizeof name - 1);
    expect_failure(name, ATSI_ECONF, "a path at most");
    memcpy(name, "hf:a/", 5);
    expect_failure(name, ATSI_ECONF, "expected USER/REPO");
    memcpy(name, "ollama:", 7);
    expect_failure(name, ATSI_ECONF, "expected ollama:NAME");
}

#define IN_SCRATCH(f) cmocka_unit_test_setup_teardown(f, enter, scratch_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        IN_SCRATCH(test_plain_file),
        IN_SCRATCH(test_quantizations),
        IN_SCRATCH(test_order_without_a_quantization),
        IN_SCRATCH(test_main_before_other_snapshots),
        IN_SCRATCH(test_places),
        IN_SCRATCH(test_other_letter_case),
        IN_SCRATCH(test_flat_cache),
        IN_SCRATCH(test_not_there),
        IN_SCRATCH(test_blob_gone),
        IN_SCRATCH(test_bad_names),
        IN_SCRATCH(test_hostile_hub),
        IN_SCRATCH(test_ollama),
        IN_SCRATCH(test_ollama_variable),
        IN_SCRATCH(test_ollama_not_there),
        IN_SCRATCH(test_ollama_damaged),
        IN_SCRATCH(test_ollama_bad_names),
        IN_SCRATCH(test_long_names),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
