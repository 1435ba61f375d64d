/* SPDX-License-Identifier: Apache-2.0
 *
 * Where plugins are looked for, which of two wins, how broken ones are refused, and what a good one
 * gets.  The plugins are those of tests/plugins.
 */
#include "core/registry.h"
#include "tests/unit/scratch.h"

#include <fcntl.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <cmocka.h>

#define FIXTURES ATSI_BINARY_DIR "/tests/plugins/"
#define ENDLESS_MS 1500 /* loading the others takes far less, also when instrumented */

/* ---------------------------------------------------------------- a runtime's worth of registry */
static char logged[16384];

static void record(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    size_t n = strlen(logged);
    (void)ctx;
    (void)level;
    (void)snprintf(logged + n, sizeof logged - n, "%s: %s\n", who, msg);
}

static void host_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
    ATSI_PRINTF(4, 5);
static void host_log(void *ctx, enum atsi_log_level level, const char *who, const char *fmt, ...)
{
    va_list ap;
    va_start(ap, fmt);
    atsi_logv(ctx, level, who, fmt, ap);
    va_end(ap);
}

struct request {
    const char *config;
    const char *const *overrides;
    const char *const *files;
    int timeout_ms;
};

struct opened {
    struct atsi_host host;
    struct atsi_conf *conf;
    struct atsi_log *log;
    struct atsi_registry *registry;
    struct atsi_err err;
};

static int try_open(struct opened *o, const struct request *q)
{
    struct atsi_registry_params p = {
        .host = &o->host, .plugin_files = q->files, .scan_timeout_ms = q->timeout_ms};
    *o = (struct opened){.host = {.struct_size = sizeof o->host,
                                  .abi_major = ATSI_ABI_MAJOR,
                                  .abi_minor = ATSI_ABI_MINOR,
                                  .log = host_log},
                         .err = ATSI_ERR_INIT};
    logged[0] = '\0';
    assert_int_equal(atsi_log_open(record, NULL, ATSI_LOG_DEBUG, &o->log), ATSI_OK);
    o->host.ctx = o->log;
    if (atsi_conf_open(q->config, q->overrides, &o->conf, &o->err) != ATSI_OK)
        fail_msg("configuration refused: %s", o->err.msg);
    p.conf = o->conf;
    p.log = o->log;
    return atsi_registry_open(&p, &o->registry, &o->err);
}

static void open_with(struct opened *o, const struct request *q)
{
    if (try_open(o, q) != ATSI_OK)
        fail_msg("refused: %s", o->err.msg);
}

static void open_plain(struct opened *o)
{
    static const struct request nothing = {0};
    open_with(o, &nothing);
}

static void shut(struct opened *o)
{
    atsi_registry_close(o->registry);
    atsi_conf_close(o->conf);
    atsi_log_close(o->log);
}

/* Puts a fixture in a folder of the test's own, as a user would. */
static void put(const char *folder, const char *fixture)
{
    char from[512], to[512];
    (void)snprintf(from, sizeof from, "%satsinfer-%s.so", FIXTURES, fixture);
    (void)snprintf(to, sizeof to, "%s/atsinfer-%s.so", scratch_path(folder), fixture);
    scratch_mkdir(folder);
    assert_int_equal(symlink(from, to), 0);
}

static void search_in(const char *variable, const char *folder)
{
    assert_int_equal(setenv(variable, scratch_path(folder), 1), 0);
}

/* ---------------------------------------------------------------- what the registry lists */
struct lookup {
    const char *file; /* fixture's name: atsinfer-FILE.so */
    struct atsi_plugin_info found;
    int n;
};

static int look(void *ctx, const struct atsi_plugin_info *p)
{
    struct lookup *l = ctx;
    char end[128];
    size_t n = (size_t)snprintf(end, sizeof end, "/atsinfer-%s.so", l->file), len = strlen(p->path);
    if (len >= n && strcmp(p->path + len - n, end) == 0) {
        l->found = *p;
        l->n++;
    }
    return 0;
}

static struct lookup lookup(const struct opened *o, const char *file)
{
    struct lookup l = {.file = file};
    assert_int_equal(atsi_registry_plugins_each(o->registry, look, &l), 0);
    return l;
}

static bool in_use(const struct opened *o, const char *file)
{
    struct lookup l = lookup(o, file);
    return l.n == 1 && l.found.plugin != NULL && l.found.why[0] == '\0';
}

static void expect_words(const char *about, const char *text, const char *words)
{
    if (words != NULL && strstr(text, words) == NULL)
        fail_msg("%s: \"%s\" does not say \"%s\"", about, text, words);
}

/* ---------------------------------------------------------------- broken plugins */
static const char core_speaks[] = "@"; /* stands for this core's version */

static const struct refusal {
    const char *fixture, *words, *more;
} refusals[] = {
    {"wrong_magic", "magic 4d4f4f42", "expected 49535441"},
    {"wrong_major", "interface 7.", core_speaks},
    {"wrong_minor", ".99,", core_speaks},
    {"short_struct", "descriptor of 32 bytes", "this core needs"},
    {"short_table", "loader table of 16 bytes", "this core needs"},
    {"null_op", "null_op_loader", "required operation graph"},
    {"unknown_kind", "unknown kind 99", NULL},
    {"bad_name", "proper name", NULL},
    {"bad_param", "parameter rate", "help"},
    {"bad_default", "default of rate", NULL},
    {"crash_entry", "signal 11", "child process"},
    {"endless_entry", "within 1500 ms", "child process"},
    {"exit_entry", "status 3", "child process"},
    {"not_here", "not for this machine", "the moon is not full"},
    {"silent", "not for this machine", "no reason given"},
    {"no_entry", "exports no atsi_plugin_entry", NULL},
    {"garbage", "cannot be loaded", "atsinfer-garbage.so"},
    {"empty", "cannot be loaded", "atsinfer-empty.so"},
    {"dangling", "cannot be loaded", "atsinfer-dangling.so"},
};

enum { N_REFUSALS = sizeof refusals / sizeof refusals[0], N_FIXTURES = N_REFUSALS - 3 };

static const char *words_of(const char *words)
{
    static char version[64];
    (void)snprintf(version, sizeof version, "core speaks %u.%u", ATSI_ABI_MAJOR, ATSI_ABI_MINOR);
    return words == core_speaks ? version : words;
}

static void broken_plugins_are_refused_and_the_good_one_loads(void **state)
{
    static const struct request q = {.timeout_ms = ENDLESS_MS};
    struct opened o;
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++)
        put("all", refusals[i].fixture);
    put("all", "good");
    put("all", "dangling"); /* there is no such fixture */
    scratch_write("all/atsinfer-garbage.so",
                  "This is text, and long enough to be no ELF header.\n");
    scratch_write("all/atsinfer-empty.so", "");
    scratch_write("all/libother.so", "not a plugin's name");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    open_with(&o, &q);
    for (size_t i = 0; i < N_REFUSALS; i++) {
        struct lookup l = lookup(&o, refusals[i].fixture);
        assert_int_equal(l.n, 1);
        assert_null(l.found.plugin);
        expect_words(refusals[i].fixture, l.found.why, refusals[i].words);
        expect_words(refusals[i].fixture, l.found.why, words_of(refusals[i].more));
        expect_words("log", logged, l.found.why);
    }
    assert_string_equal(lookup(&o, "crash_entry").found.name, "crash_entry");
    assert_true(in_use(&o, "good"));
    shut(&o);
}

static void a_refused_plugin_file_is_an_error(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_FIXTURES; i++) {
        char path[512];
        const char *const files[] = {path, NULL};
        const struct request q = {.files = files, .timeout_ms = ENDLESS_MS};
        struct opened o;
        (void)snprintf(path, sizeof path, "%satsinfer-%s.so", FIXTURES, refusals[i].fixture);
        assert_int_equal(try_open(&o, &q), ATSI_ECONF);
        assert_null(o.registry);
        expect_words(refusals[i].fixture, o.err.msg, path);
        expect_words(refusals[i].fixture, o.err.msg, refusals[i].words);
        shut(&o);
    }
}

static void a_missing_plugin_file_is_an_error(void **state)
{
    static const char *const files[] = {"no-such.so", NULL};
    static const struct request q = {.files = files};
    struct opened o;
    (void)state;
    assert_int_equal(try_open(&o, &q), ATSI_ECONF);
    expect_words("missing", o.err.msg, "--plugin ./no-such.so");
    shut(&o);
}

/* exit() in the child must not write what this process has buffered. */
static void a_plugin_that_exits_leaves_the_application_alone(void **state)
{
    struct opened o;
    char text[16] = "";
    FILE *f;
    (void)state;
    put("all", "exit_entry");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    f = fopen(scratch_path("output"), "w+e");
    assert_non_null(f);
    assert_true(fputs("once", f) >= 0);
    open_plain(&o);
    assert_int_equal(fseek(f, 0, SEEK_SET), 0);
    assert_int_equal(fread(text, 1, sizeof text - 1, f), 4);
    assert_string_equal(text, "once");
    (void)fclose(f);
    shut(&o);
}

static void no_standard_streams_are_needed(void **state)
{
    struct opened o;
    int saved[3];
    (void)state;
    put("all", "good");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    (void)fflush(NULL);
    for (int fd = 0; fd < 3; fd++) {
        saved[fd] = fcntl(fd, F_DUPFD_CLOEXEC, 10);
        (void)close(fd);
    }
    open_plain(&o);
    for (int fd = 0; fd < 3; fd++)
        if (saved[fd] >= 0) {
            (void)dup2(saved[fd], fd);
            (void)close(saved[fd]);
        }
    assert_true(in_use(&o, "good"));
    shut(&o);
}

static void devices_that_do_not_open_say_so(void **state)
{
    static const struct {
        const char *name, *words;
        int devices;
    } cases[] = {{"failing_open", "device 0 does not answer", 1},
                 {"lying_probe", "there is no device 0 after all", 1000}};
    struct opened o;
    (void)state;
    put("all", "failing_open");
    put("all", "lying_probe");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    open_plain(&o);
    for (size_t i = 0; i < 2; i++) {
        const struct atsi_backend_ops *ops =
            atsi_registry_find(o.registry, ATSI_KIND_BACKEND, cases[i].name);
        struct atsi_backend *be = NULL;
        struct atsi_err err = ATSI_ERR_INIT;
        assert_non_null(ops);
        assert_int_equal(ops->probe(&o.host), cases[i].devices);
        assert_int_equal(ops->open(&o.host, 0, &be, &err), ATSI_ENODEV);
        assert_null(be);
        assert_string_equal(err.msg, cases[i].words);
    }
    shut(&o);
}

/* ---------------------------------------------------------------- what a good plugin gets */
static void components_are_found_by_kind_and_name(void **state)
{
    const struct atsi_component *c;
    const char *path = NULL;
    char names[256], few[4];
    struct opened o;
    int n;
    (void)state;
    put("all", "good");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    open_plain(&o);
    c = atsi_registry_at(o.registry, ATSI_KIND_LOADER, 0, &path);
    assert_non_null(c);
    assert_string_equal(c->name, "good_loader");
    assert_string_equal(path, scratch_path("all/atsinfer-good.so"));
    assert_ptr_equal(atsi_registry_find(o.registry, ATSI_KIND_LOADER, "good_loader"), c->ops);
    assert_null(atsi_registry_find(o.registry, ATSI_KIND_BACKEND, "good_loader"));
    assert_null(atsi_registry_find(o.registry, ATSI_KIND_LOADER, "good"));
    assert_null(atsi_registry_at(o.registry, ATSI_KIND_LOADER, 99, NULL));
    n = atsi_registry_names(o.registry, ATSI_KIND_LOADER, names, sizeof names);
    assert_int_equal(n, strlen(names));
    assert_int_equal(strncmp(names, "good_loader", 11), 0);
    assert_int_equal(atsi_registry_names(o.registry, ATSI_KIND_LOADER, few, sizeof few), n);
    assert_string_equal(few, "goo");
    shut(&o);
}

static void plugins_of_the_installation_load(void **state)
{
    struct opened o;
    (void)state;
    open_plain(&o);
    assert_true(in_use(&o, "gguf"));
    assert_true(in_use(&o, "cpu_ref"));
    assert_non_null(atsi_registry_find(o.registry, ATSI_KIND_LOADER, "gguf"));
    assert_non_null(atsi_registry_find(o.registry, ATSI_KIND_BACKEND, "cpu_ref"));
    shut(&o);
}

static void parameters_become_settings(void **state)
{
    static const char *const overrides[] = {"plugin.good.level=7", NULL};
    static const struct request q = {.overrides = overrides};
    struct opened o;
    (void)state;
    put("all", "good");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    open_with(&o, &q);
    assert_string_equal(atsi_conf_get(o.conf, "plugin.good.level"), "7");
    assert_string_equal(atsi_conf_origin(o.conf, "plugin.good.level"), "command line");
    assert_string_equal(atsi_conf_get(o.conf, "plugin.good.mode"), "quick");
    assert_string_equal(atsi_conf_origin(o.conf, "plugin.good.mode"), "built-in");
    assert_null(atsi_conf_get(o.conf, "plugin.good.nothing"));
    assert_int_equal(atsi_conf_check_plugins(o.conf, o.log, &o.err), ATSI_OK);
    shut(&o);
}

static void a_wrong_setting_is_the_users_error(void **state)
{
    static const char *const overrides[] = {"plugin.good.level=70", NULL};
    static const struct request q = {.overrides = overrides};
    struct opened o;
    (void)state;
    put("all", "good");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    assert_int_equal(try_open(&o, &q), ATSI_ECONF);
    expect_words("level", o.err.msg, "level");
    expect_words("level", o.err.msg, "command line");
    shut(&o);
}

/* In no process but this one, and not for a plugin that is not in use. */
static void fini_runs_exactly_once(void **state)
{
    char text[64] = "";
    struct opened o;
    FILE *f;
    (void)state;
    put("all", "good");
    put("all", "twin");
    search_in("ATSINFER_PLUGIN_PATH", "all");
    search_in("FIXTURE_FINI", "fini");
    open_plain(&o);
    assert_int_equal(access(scratch_path("fini"), F_OK), -1);
    atsi_registry_close(o.registry);
    o.registry = NULL;
    f = fopen(scratch_path("fini"), "re");
    assert_non_null(f);
    (void)fread(text, 1, sizeof text - 1, f);
    (void)fclose(f);
    assert_int_equal(unsetenv("FIXTURE_FINI"), 0);
    assert_string_equal(text, "good\n");
    expect_words("log", logged, "good: fini");
    shut(&o);
}

/* ---------------------------------------------------------------- search order */
static void expect_first(const struct request *q, const char *version)
{
    struct opened o;
    struct lookup good, twin;
    open_with(&o, q);
    good = lookup(&o, "good");
    twin = lookup(&o, "twin");
    if (good.found.plugin == NULL) {
        struct lookup other = good;
        good = twin;
        twin = other;
    }
    assert_non_null(good.found.plugin);
    assert_null(twin.found.plugin);
    assert_string_equal(good.found.plugin->name, "good");
    assert_string_equal(good.found.plugin->version, version);
    expect_words("the later one", twin.found.why, good.found.path);
    expect_words("the later one", twin.found.why, "was found first");
    shut(&o);
}

static void the_first_of_a_name_wins(void **state)
{
    static const char *const files[] = {FIXTURES "atsinfer-good.so", NULL};
    char list[1024], setting[600];
    const char *const overrides[] = {setting, NULL};
    static const struct request plain = {0}, named = {.files = files};
    const struct request with_setting = {.overrides = overrides};
    (void)state;
    put("a", "twin");
    put("b", "good");
    (void)snprintf(list, sizeof list, "%s:%s", scratch_path("a"), scratch_path("b"));
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", list, 1), 0);
    expect_first(&plain, "9.9.9");
    (void)snprintf(setting, sizeof setting, "plugins.path=%s", scratch_path("b"));
    expect_first(&with_setting, "0.1.0");
    (void)snprintf(list, sizeof list, "::%s:%s:", scratch_path("b"), scratch_path("a"));
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", list, 1), 0);
    expect_first(&plain, "0.1.0");
    assert_int_equal(unlink(scratch_path("b/atsinfer-good.so")), 0);
    expect_first(&named, "0.1.0");
}

static void a_bare_file_name_means_this_folder(void **state)
{
    static const char *const files[] = {"atsinfer-good.so", NULL};
    static const struct request q = {.files = files};
    struct opened o;
    (void)state;
    put(".", "good");
    open_with(&o, &q);
    assert_true(in_use(&o, "good"));
    assert_string_equal(lookup(&o, "good").found.path, "./atsinfer-good.so");
    shut(&o);
}

static void the_users_folder_is_searched(void **state)
{
    struct opened o;
    (void)state;
    put("data/atsinfer/plugins", "good");
    open_plain(&o);
    assert_true(in_use(&o, "good"));
    shut(&o);
    put(".local/share/atsinfer/plugins", "twin");
    assert_int_equal(setenv("XDG_DATA_HOME", "data", 1), 0); /* relative ones are to be ignored */
    open_plain(&o);
    assert_int_equal(lookup(&o, "good").n, 0);
    assert_true(in_use(&o, "twin"));
    shut(&o);
}

struct folders {
    char text[1024];
};

static int list_folder(void *ctx, const char *dir, const char *origin, const char *found)
{
    struct folders *f = ctx;
    size_t n = strlen(f->text);
    (void)dir;
    (void)snprintf(f->text + n, sizeof f->text - n, "%s: %s\n", origin, found);
    return strcmp(origin, "this installation") == 0 ? 5 : 0;
}

static void folders_are_listed_in_order(void **state)
{
    char list[512], setting[600];
    const char *const overrides[] = {setting, NULL};
    const struct request q = {.overrides = overrides};
    struct folders f = {""};
    struct opened o;
    (void)state;
    put("a", "good");
    put("a", "failing_open");
    put("data/atsinfer/plugins", "lying_probe");
    (void)snprintf(setting, sizeof setting, "plugins.path=%s", scratch_path("nowhere"));
    (void)snprintf(list, sizeof list, "%s:%s", scratch_path("a"), scratch_path("a"));
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", list, 1), 0);
    open_with(&o, &q);
    assert_int_equal(atsi_registry_search_each(o.registry, list_folder, &f), 5);
    *strstr(f.text, "this installation") = '\0';
    assert_string_equal(f.text, "plugins.path: not there\n"
                                "ATSINFER_PLUGIN_PATH: 2 plugins\n"
                                "ATSINFER_PLUGIN_PATH: 2 plugins\n"
                                "user's data folder: 1 plugin\n");
    assert_true(in_use(&o, "good")); /* the same file twice is one */
    shut(&o);
}

static void write_setting(const char *file, const char *folder)
{
    char text[600];
    (void)snprintf(text, sizeof text, "[plugins]\npath = %s\n", scratch_path(folder));
    scratch_write(file, text);
}

static void a_path_is_honoured_from_a_named_file_only(void **state)
{
    struct request q = {0};
    struct opened o;
    (void)state;
    put("a", "good");
    write_setting("atsinfer.ini", "a"); /* the working directory's */
    open_plain(&o);
    assert_int_equal(lookup(&o, "good").n, 0);
    expect_words("log", logged, "plugins.path of ./atsinfer.ini");
    expect_words("log", logged, "ignored");
    shut(&o);
    q.config = "atsinfer.ini";
    open_with(&o, &q);
    assert_true(in_use(&o, "good"));
    shut(&o);
    write_setting("config/atsinfer/atsinfer.ini", "a");
    scratch_write("atsinfer.ini", "[cpu]\nspin = 5\n");
    open_plain(&o);
    assert_true(in_use(&o, "good"));
    shut(&o);
}

int main(void)
{
#define TEST(name) cmocka_unit_test_setup_teardown(name, scratch_enter, scratch_leave)
    const struct CMUnitTest tests[] = {
        TEST(broken_plugins_are_refused_and_the_good_one_loads),
        TEST(a_refused_plugin_file_is_an_error),
        TEST(a_missing_plugin_file_is_an_error),
        TEST(a_plugin_that_exits_leaves_the_application_alone),
        TEST(no_standard_streams_are_needed),
        TEST(devices_that_do_not_open_say_so),
        TEST(components_are_found_by_kind_and_name),
        TEST(plugins_of_the_installation_load),
        TEST(parameters_become_settings),
        TEST(a_wrong_setting_is_the_users_error),
        TEST(fini_runs_exactly_once),
        TEST(the_first_of_a_name_wins),
        TEST(a_bare_file_name_means_this_folder),
        TEST(the_users_folder_is_searched),
        TEST(folders_are_listed_in_order),
        TEST(a_path_is_honoured_from_a_named_file_only),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
