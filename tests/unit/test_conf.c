/* SPDX-License-Identifier: Apache-2.0
 *
 * Where settings come from and which source wins, what a value may look like, settings of plugins,
 * and the shipped ini against the table of keys.  Input that is refused: test_conf_bad.c.
 */
#include "core/conf.h"
#include "core/conf_keys.h"
#include "core/log.h"
#include "tests/unit/scratch.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

static struct atsi_conf *open_conf(const char *config, const char *const *overrides)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = NULL;
    if (atsi_conf_open(config, overrides, &c, &err) != ATSI_OK)
        fail_msg("refused: %s", err.msg);
    return c;
}

static void expect(const struct atsi_conf *c, const char *key, const char *value,
                   const char *origin)
{
    assert_non_null(atsi_conf_get(c, key));
    assert_string_equal(atsi_conf_get(c, key), value);
    assert_string_equal(atsi_conf_origin(c, key), origin);
}

/* ---------------------------------------------------------------- sources */
static void defaults(void **state)
{
    struct atsi_conf *c = open_conf(NULL, NULL);
    (void)state;
    expect(c, "prefill.chunk", "0", "built-in");
    assert_int_equal(atsi_conf_int(c, "prefill.chunk"), 0);
    assert_true(atsi_conf_size(c, "memory.vram") == UINT64_MAX); /* auto */
    assert_true(atsi_conf_size(c, "memory.vram_margin") == UINT64_C(1) << 30);
    assert_null(atsi_conf_get(c, "no.such"));
    assert_string_equal(atsi_conf_origin(c, "no.such"), "");
    atsi_conf_close(c);
    atsi_conf_close(NULL);
}

/* Each source sets one key more than the next one overrides. */
static void order(void **state)
{
    static const char *const overrides[] = {"cpu.spin=5", "cpu.spin=6", NULL};
    char user[256], here[64] = "./atsinfer.ini:3";
    struct atsi_conf *c;
    (void)state;
    (void)snprintf(user, sizeof user, "%s:2", scratch_path("config/atsinfer/atsinfer.ini"));
    scratch_write("config/atsinfer/atsinfer.ini",
                  "[cpu]\nthreads = 1\nthreads_batch = 1\ncores = all\nspin = 1\n");
    scratch_write("atsinfer.ini", "[cpu]\n\nthreads_batch = 2\ncores = p\nspin = 2\n");
    assert_int_equal(setenv("ATSINFER_CPU_CORES", "all", 1), 0);
    assert_int_equal(setenv("ATSINFER_CPU_SPIN", "4", 1), 0);
    c = open_conf(NULL, overrides);
    expect(c, "cpu.threads", "1", user);
    expect(c, "cpu.threads_batch", "2", here);
    expect(c, "cpu.cores", "all", "environment ATSINFER_CPU_CORES");
    expect(c, "cpu.spin", "6", "command line");
    atsi_conf_close(c);
}

/* --config takes the place of ./atsinfer.ini, not of the user's file. */
static void named_file(void **state)
{
    char named[256], origin[300];
    struct atsi_conf *c;
    (void)state;
    (void)snprintf(named, sizeof named, "%s", scratch_path("my settings.ini"));
    (void)snprintf(origin, sizeof origin, "%s:2", named);
    scratch_write("config/atsinfer/atsinfer.ini", "[cpu]\nthreads = 1\nspin = 1\n");
    scratch_write("atsinfer.ini", "[cpu]\nspin = 2\n[kv]\ntype_k = f32\n");
    scratch_write("my settings.ini", "[cpu]\nspin = 3\n");
    c = open_conf(named, NULL);
    expect(c, "cpu.spin", "3", origin);
    expect(c, "cpu.threads", "1", atsi_conf_origin(c, "cpu.threads"));
    expect(c, "kv.type_k", "f16", "built-in");
    atsi_conf_close(c);
}

/* Without XDG_CONFIG_HOME the user's file lies under HOME. */
static void home(void **state)
{
    struct atsi_conf *c;
    (void)state;
    assert_int_equal(unsetenv("XDG_CONFIG_HOME"), 0);
    scratch_write(".config/atsinfer/atsinfer.ini", "[cpu]\nthreads = 3\n");
    c = open_conf(NULL, NULL);
    assert_int_equal(atsi_conf_int(c, "cpu.threads"), 3);
    atsi_conf_close(c);
}

/* A folder of a stranger must not choose what code runs, nor hide what the user chose. */
static void found_plugin_path(void **state)
{
    char user[256];
    struct atsi_conf *c;
    (void)state;
    scratch_write("atsinfer.ini", "[plugins]\npath = /evil\n");
    c = open_conf(NULL, NULL);
    expect(c, "plugins.path", "", "built-in");
    assert_string_equal(atsi_conf_ignored_plugin_path(c), "./atsinfer.ini:2");
    atsi_conf_close(c);
    (void)snprintf(user, sizeof user, "%s:2", scratch_path("config/atsinfer/atsinfer.ini"));
    scratch_write("config/atsinfer/atsinfer.ini", "[plugins]\npath = /users\n");
    c = open_conf(NULL, NULL);
    expect(c, "plugins.path", "/users", user);
    assert_non_null(atsi_conf_ignored_plugin_path(c));
    atsi_conf_close(c);
    c = open_conf("atsinfer.ini", NULL); /* named: the user wants it */
    expect(c, "plugins.path", "/evil", "atsinfer.ini:2");
    assert_null(atsi_conf_ignored_plugin_path(c));
    atsi_conf_close(c);
    assert_int_equal(setenv("ATSINFER_PLUGINS_PATH", "/mine", 1), 0);
    c = open_conf(NULL, NULL);
    expect(c, "plugins.path", "/mine", "environment ATSINFER_PLUGINS_PATH");
    atsi_conf_close(c);
}

/* Two spellings of the same rule; the environment knows them as well. */
static void rules(void **state)
{
    static const char *const overrides[] = {"policy.rule.10=c = cpu", NULL};
    struct atsi_conf *c;
    (void)state;
    scratch_write("atsinfer.ini", "[policy]\nrule.1 = a = cpu\n[policy.rule]\n2 = b = cpu\n");
    assert_int_equal(setenv("ATSINFER_POLICY_RULE_3", "ffn = gpu", 1), 0);
    c = open_conf(NULL, overrides);
    expect(c, "policy.rule.1", "a = cpu", "./atsinfer.ini:2");
    expect(c, "policy.rule.2", "b = cpu", "./atsinfer.ini:4");
    expect(c, "policy.rule.3", "ffn = gpu", "environment ATSINFER_POLICY_RULE_3");
    expect(c, "policy.rule.10", "c = cpu", "command line");
    assert_null(atsi_conf_get(c, "policy.rule.4"));
    atsi_conf_close(c);
}

/* ---------------------------------------------------------------- texts */
static void values_stay_whole(void **state)
{
    static const struct {
        const char *file, *value;
    } cases[] = {
        {"[model]\npath = a ; b # c\n", "a ; b # c"},
        {"[model]\npath=;a\n", ";a"},
        {"[model]\npath = a = b: c\n", "a = b: c"},
        {"[model]\npath = \"quoted\"\n", "\"quoted\""},
        {"[model]\npath = %s%n\n", "%s%n"},
        {"[model]\npath = \xc3\xa4\xe6\xa8\xa1\n", "\xc3\xa4\xe6\xa8\xa1"},
        {"[model]\npath = \t spaced out \t\n", "spaced out"},
        {"[model]\npath =\n", ""},
        {"[model]\n  path = indented\n", "indented"},
        {"  [model]\n\tpath = a\n   # no continuation\n", "a"},
        {"[model]\r\npath = a\r\n", "a"},
        {"\xef\xbb\xbf[model]\npath = a\n", "a"},
        {"[model]\npath = no newline", "no newline"},
        {"; comment\n# comment = x\n\n[model]\n;path = b\npath = a\n", "a"},
        {"[cpu]\n[model]\n[model]\npath = a\n", "a"},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct atsi_conf *c;
        scratch_write("atsinfer.ini", cases[i].file);
        c = open_conf(NULL, NULL);
        assert_string_equal(atsi_conf_get(c, "model.path"), cases[i].value);
        atsi_conf_close(c);
    }
}

static void empty_files(void **state)
{
    static const char *const texts[] = {"", "\n", "\xef\xbb\xbf", "# only a comment", "[cpu]\n"};
    (void)state;
    for (size_t i = 0; i < sizeof texts / sizeof texts[0]; i++) {
        scratch_write("atsinfer.ini", texts[i]);
        atsi_conf_close(open_conf("atsinfer.ini", NULL));
    }
}

static void very_long_value(void **state)
{
    char *text = malloc(20000), *value;
    struct atsi_conf *c;
    (void)state;
    assert_non_null(text);
    strcpy(text, "[policy]\nrule.1 = ");
    value = text + strlen(text);
    for (int i = 0; i < 1000; i++) /* 10 kB */
        memcpy(value + (size_t)i * 10, "(blk|ffn)#", 10);
    strcpy(value + 10000, " ;x = gpu");
    scratch_write("atsinfer.ini", text);
    c = open_conf(NULL, NULL);
    assert_string_equal(atsi_conf_get(c, "policy.rule.1"), value);
    atsi_conf_close(c);
    free(text);
}

/* ---------------------------------------------------------------- kinds of values */
static void sizes(void **state)
{
    static const struct {
        const char *text;
        uint64_t bytes;
    } good[] = {{"0", 0},
                {"4096", 4096},
                {"1B", 1},
                {"64KiB", 65536},
                {"64k", 65536},
                {"512 MiB", UINT64_C(512) << 20},
                {"1.5GiB", UINT64_C(3) << 29},
                {"2g", UINT64_C(2) << 30},
                {"1TiB", UINT64_C(1) << 40}};
    static const char *const bad[] = {"",    "x",   "-1",   "1XB",   "GiB",       "nan",
                                      "inf", "1 2", "1e30", "1GiBx", "9999999TiB"};
    uint64_t bytes;
    (void)state;
    for (size_t i = 0; i < sizeof good / sizeof good[0]; i++) {
        assert_true(atsi_conf_parse_size(good[i].text, &bytes));
        assert_true(bytes == good[i].bytes);
    }
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        if (atsi_conf_parse_size(bad[i], &bytes))
            fail_msg("\"%s\" was taken for a size", bad[i]);
}

static void booleans(void **state)
{
    static const char *const yes[] = {"on", "true", "1", "yes", "ON", "True"};
    static const char *const no[] = {"off", "false", "0", "no", "OFF"};
    static const char *const bad[] = {"", "2", "onn", "y", "enabled"};
    bool value = false;
    (void)state;
    for (size_t i = 0; i < sizeof yes / sizeof yes[0]; i++)
        assert_true(atsi_conf_parse_bool(yes[i], &value) && value);
    for (size_t i = 0; i < sizeof no / sizeof no[0]; i++)
        assert_true(atsi_conf_parse_bool(no[i], &value) && !value);
    for (size_t i = 0; i < sizeof bad / sizeof bad[0]; i++)
        assert_false(atsi_conf_parse_bool(bad[i], &value));
}

static void checks(void **state)
{
    static const struct {
        struct atsi_conf_key key;
        const char *good[6], *bad[6];
    } cases[] = {
        {{"a.int", ATSI_CONF_INT, "1", 1, 16, NULL, ""},
         {"1", "16", "007"},
         {"0", "17", "1.5", "x", "99999999999999999999"}},
        {{"a.any", ATSI_CONF_INT, "1", 0, 0, NULL, ""}, {"-5", "123456789"}, {"", "5x"}},
        {{"a.float", ATSI_CONF_FLOAT, "1", 0, 1, NULL, ""},
         {"0", "0.5", "1e-3"},
         {"-0.1", "1.1", "nan", "half"}},
        {{"a.free", ATSI_CONF_FLOAT, "1", 0, 0, NULL, ""}, {"-1e9"}, {"inf", "nan", "1e999"}},
        {{"a.budget", ATSI_CONF_BUDGET, "auto", 0, 0, "auto|off", ""},
         {"auto", "off", "6GiB", "80%", "0%", "12.5%m"},
         {"101%", "-1%", "80%x", "automatic", "%", ""}},
        {{"a.choice", ATSI_CONF_CHOICE, "p", 0, 0, "p|all", ""}, {"p", "all"}, {"", "al", "p|all"}},
        {{"a.bool", ATSI_CONF_BOOL, "on", 0, 0, NULL, ""}, {"on"}, {"maybe"}},
        {{"a.size", ATSI_CONF_SIZE, "0", 0, 0, NULL, ""}, {"1GiB"}, {"50%"}},
        {{"a.text", ATSI_CONF_TEXT, "", 0, 0, NULL, ""}, {"", "anything"}, {NULL}},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        for (int k = 0; k < 6 && cases[i].good[k] != NULL; k++) {
            struct atsi_err err = ATSI_ERR_INIT;
            if (atsi_conf_check_value(&cases[i].key, cases[i].good[k], &err) != ATSI_OK)
                fail_msg("%s = %s refused: %s", cases[i].key.name, cases[i].good[k], err.msg);
        }
        for (int k = 0; k < 6 && cases[i].bad[k] != NULL; k++) {
            struct atsi_err err = ATSI_ERR_INIT;
            if (atsi_conf_check_value(&cases[i].key, cases[i].bad[k], &err) != ATSI_ECONF)
                fail_msg("%s = %s accepted", cases[i].key.name, cases[i].bad[k]);
            assert_non_null(strstr(err.msg, cases[i].bad[k]));
        }
    }
}

/* ---------------------------------------------------------------- plugins */
static const struct atsi_param p_level = {sizeof p_level, ATSI_PARAM_INT, "level",    "3",
                                          "0..9",         NULL,           "How much."};
static const struct atsi_param p_mode = {sizeof p_mode, ATSI_PARAM_CHOICE, "mode", "a", "a|b", NULL,
                                         "How."};
static const struct atsi_param p_wrong = {sizeof p_wrong, ATSI_PARAM_INT,     "wrong", "12", "0..9",
                                          NULL,           "Breaks its range."};

struct warnings {
    int n;
    char last[1024];
};

static void take_warning(void *ctx, enum atsi_log_level level, const char *who, const char *msg)
{
    struct warnings *w = ctx;
    (void)who;
    assert_int_equal(level, ATSI_LOG_WARN);
    w->n++;
    (void)snprintf(w->last, sizeof w->last, "%s", msg);
}

static void plugin_settings(void **state)
{
    static const struct atsi_param *const params[] = {&p_level, &p_mode, NULL};
    static const char *const overrides[] = {"plugin.mine.mode=b", NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct warnings w = {0};
    struct atsi_log *log = NULL;
    struct atsi_conf *c;
    (void)state;
    scratch_write("atsinfer.ini", "[plugin.mine]\nlevel = 5\nmode = a\n[plugin.absent]\nx = 1\n");
    assert_int_equal(setenv("ATSINFER_PLUGIN_MINE_LEVEL", "7", 1), 0);
    assert_int_equal(setenv("ATSINFER_PLUGIN_PATH", "/x", 1), 0); /* the registry's, no setting */
    assert_int_equal(atsi_log_open(take_warning, &w, ATSI_LOG_WARN, &log), ATSI_OK);
    c = open_conf(NULL, overrides);
    assert_null(atsi_conf_get(c, "plugin.mine.level"));
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    expect(c, "plugin.mine.level", "7", "environment ATSINFER_PLUGIN_MINE_LEVEL");
    expect(c, "plugin.mine.mode", "b", "command line");
    assert_int_equal(atsi_conf_check_plugins(c, log, &err), ATSI_OK);
    assert_int_equal(w.n, 1);
    assert_non_null(strstr(w.last, "./atsinfer.ini:5"));
    assert_non_null(strstr(w.last, "plugin.absent.x"));
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_EINVAL);
    atsi_conf_close(c);
    atsi_log_close(log);
}

/* A plugin refused half-way leaves no key behind: its texts are gone with it. */
static void refused_declaration(void **state)
{
    static const struct atsi_param *const params[] = {&p_level, &p_wrong, NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c = open_conf(NULL, NULL);
    (void)state;
    assert_int_equal(atsi_conf_declare(c, "half", params, &err), ATSI_EINVAL);
    assert_non_null(strstr(err.msg, "half"));
    assert_non_null(strstr(err.msg, "wrong"));
    assert_null(atsi_conf_get(c, "plugin.half.level"));
    atsi_conf_close(c);
}

static void undeclared_plugin_key(void **state)
{
    static const struct atsi_param *const params[] = {&p_level, NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c;
    (void)state;
    scratch_write("atsinfer.ini", "[plugin.mine]\nlevle = 5\n");
    c = open_conf(NULL, NULL);
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    assert_int_equal(atsi_conf_check_plugins(c, NULL, &err), ATSI_ECONF);
    assert_string_equal(err.msg, "./atsinfer.ini:2: unknown key plugin.mine.levle; did you mean "
                                 "plugin.mine.level?");
    atsi_conf_close(c);
}

/* A near miss is an error; what may belong to an absent plugin is a warning. */
static void undeclared_plugin_variable(void **state)
{
    static const struct atsi_param *const params[] = {&p_level, NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct warnings w = {0};
    struct atsi_log *log = NULL;
    struct atsi_conf *c;
    (void)state;
    assert_int_equal(atsi_log_open(take_warning, &w, ATSI_LOG_WARN, &log), ATSI_OK);
    assert_int_equal(setenv("ATSINFER_PLUGIN_MINE_TOO_VERBOSITY", "7", 1), 0);
    c = open_conf(NULL, NULL);
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    assert_int_equal(atsi_conf_check_plugins(c, log, &err), ATSI_OK);
    assert_int_equal(w.n, 1);
    assert_non_null(strstr(w.last, "ATSINFER_PLUGIN_MINE_TOO_VERBOSITY"));
    atsi_conf_close(c);
    assert_int_equal(setenv("ATSINFER_PLUGIN_MINE_LEVLE", "7", 1), 0);
    c = open_conf(NULL, NULL);
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_OK);
    assert_int_equal(atsi_conf_check_plugins(c, log, &err), ATSI_ECONF);
    assert_string_equal(err.msg, "environment ATSINFER_PLUGIN_MINE_LEVLE: no such setting; did you "
                                 "mean ATSINFER_PLUGIN_MINE_LEVEL");
    atsi_conf_close(c);
    atsi_log_close(log);
}

static void bad_plugin_value(void **state)
{
    static const struct atsi_param *const params[] = {&p_level, NULL};
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_conf *c;
    (void)state;
    scratch_write("atsinfer.ini", "[plugin.mine]\nlevel = 10\n");
    c = open_conf(NULL, NULL);
    assert_int_equal(atsi_conf_declare(c, "mine", params, &err), ATSI_ECONF);
    assert_string_equal(err.msg, "./atsinfer.ini:2: plugin.mine.level: 10 is outside 0..9");
    atsi_conf_close(c);
}

/* ---------------------------------------------------------------- the shipped ini */
struct shipped {
    FILE *f;
    char *line;
    size_t room;
    char section[64], comment[1024];
    unsigned number;
};

/* The next commented-out "# key = value" of the file; comments before it are gathered. */
static bool next_key(struct shipped *s, char key[128], char value[256])
{
    s->comment[0] = '\0';
    while (getline(&s->line, &s->room, s->f) > 0) {
        char name[64], rest[256] = "";
        s->number++;
        s->line[strcspn(s->line, "\n")] = '\0';
        if (sscanf(s->line, "[%63[^]]]", s->section) == 1) {
            s->comment[0] = '\0';
        } else if (s->section[0] != '\0' &&
                   sscanf(s->line, "# %63[a-z0-9_.] = %255[^\n]", name, rest) >= 1 &&
                   strstr(s->line, " =") == s->line + 2 + strlen(name)) {
            (void)snprintf(key, 128, "%s.%s", s->section, name);
            (void)snprintf(value, 256, "%s", rest);
            return true;
        } else if (strncmp(s->line, "# ", 2) == 0) {
            size_t at = strlen(s->comment);
            (void)snprintf(s->comment + at, sizeof s->comment - at, "%s%s", at > 0 ? " " : "",
                           s->line + 2);
        } else if (s->line[0] != '\0' && s->line[0] != '#') {
            fail_msg("line %u is in force: %s", s->number, s->line);
        }
    }
    return false;
}

static int compare_with_shipped(void *ctx, const struct atsi_conf_entry *e)
{
    struct shipped *s = ctx;
    char key[128], value[256], comment[1024], type[256];
    const char *want = strcmp(e->key, "policy.rule.*") == 0 ? "policy.rule.1" : e->key;
    if (!next_key(s, key, value))
        fail_msg("atsinfer.ini lacks %s", e->key);
    assert_string_equal(key, want);
    assert_string_equal(value, e->def);
    if (e->range[0] != '\0' && strcmp(e->type, "budget") == 0)
        (void)snprintf(type, sizeof type, "%s: %s, a size or a percentage", e->type, e->range);
    else if (e->range[0] != '\0')
        (void)snprintf(type, sizeof type, "%s: %s", e->type, e->range);
    else
        (void)snprintf(type, sizeof type, "%s", e->type);
    (void)snprintf(comment, sizeof comment, "%s (%s)", e->help, type);
    assert_string_equal(s->comment, comment);
    return 0;
}

static void shipped_ini(void **state)
{
    struct atsi_conf *c = open_conf(NULL, NULL);
    struct shipped s = {.f = fopen(ATSI_SOURCE_DIR "/atsinfer.ini", "re")};
    char key[128], value[256];
    (void)state;
    assert_non_null(s.f);
    assert_int_equal(atsi_conf_each(c, compare_with_shipped, &s), 0);
    if (next_key(&s, key, value))
        fail_msg("atsinfer.ini line %u lists %s, which is no setting", s.number, key);
    assert_int_equal(fclose(s.f), 0);
    free(s.line);
    atsi_conf_close(c);
}

/* With every key uncommented the file is accepted and changes nothing. */
static void shipped_ini_uncommented(void **state)
{
    struct shipped s = {.f = fopen(ATSI_SOURCE_DIR "/atsinfer.ini", "re")};
    char key[128], value[256], text[16384] = "", section[64] = "";
    size_t at = 0, n;
    struct atsi_conf *c;
    const struct atsi_conf_key *keys = atsi_conf_keys(&n);
    (void)state;
    assert_non_null(s.f);
    while (next_key(&s, key, value)) {
        if (strcmp(section, s.section) != 0)
            at += (size_t)snprintf(text + at, sizeof text - at, "[%s]\n", s.section);
        (void)snprintf(section, sizeof section, "%s", s.section);
        at += (size_t)snprintf(text + at, sizeof text - at, "%s = %s\n", key + strlen(section) + 1,
                               value);
        assert_true(at < sizeof text);
    }
    assert_int_equal(fclose(s.f), 0);
    free(s.line);
    scratch_write("all.ini", text);
    c = open_conf("all.ini", NULL);
    for (size_t i = 0; i < n; i++) {
        const char *name = keys[i].name;
        if (strcmp(name, "policy.rule.*") == 0)
            continue;
        assert_string_equal(atsi_conf_get(c, name), keys[i].def);
        assert_memory_equal(atsi_conf_origin(c, name), "all.ini:", 8);
    }
    atsi_conf_close(c);
}

#define TEST(fn) cmocka_unit_test_setup_teardown(fn, scratch_enter, scratch_leave)

int main(void)
{
    const struct CMUnitTest tests[] = {
        TEST(defaults),
        TEST(order),
        TEST(named_file),
        TEST(home),
        TEST(found_plugin_path),
        TEST(rules),
        TEST(values_stay_whole),
        TEST(empty_files),
        TEST(very_long_value),
        cmocka_unit_test(sizes),
        cmocka_unit_test(booleans),
        cmocka_unit_test(checks),
        TEST(plugin_settings),
        TEST(refused_declaration),
        TEST(undeclared_plugin_key),
        TEST(undeclared_plugin_variable),
        TEST(bad_plugin_value),
        TEST(shipped_ini),
        TEST(shipped_ini_uncommented),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
