/* SPDX-License-Identifier: Apache-2.0
 *
 * Split models: all parts are found, agree and are used as one, or the refusal says which part is
 * wrong and why. */
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include "gguf_fixture.h"
#include "loaders/gguf/gguf.h"
#include "loaders/gguf/split.h"

/* What one part of a three-part model says of itself; the defaults are right. */
struct part {
    uint32_t no, count, total;
    const char *tensor;  /* its only tensor; NULL: none */
    uint32_t alignment;  /* of this part */
    uint32_t count_type; /* value type of split.count */
};

#define N_PARTS 3u

static const char *part_path(uint32_t i)
{
    char name[64];
    (void)snprintf(name, sizeof name, "split-%05u-of-%05u.gguf", i + 1, N_PARTS);
    return fx_path(name);
}

static void write_part(const struct part *p, const char *path, bool first)
{
    struct gw w = {0};
    gw_header(&w, 3, p->tensor != NULL ? 1 : 0, first ? 5 : 4);
    if (first)
        gw_kv_str(&w, "general.architecture", "llama");
    gw_kv_int(&w, "general.alignment", ATSI_META_U32, p->alignment);
    gw_kv_int(&w, "split.no", ATSI_META_U16, p->no);
    gw_kv_int(&w, "split.count", p->count_type, p->count);
    gw_kv_int(&w, "split.tensors.count", ATSI_META_I32, p->total);
    if (p->tensor != NULL) {
        gw_tensor(&w, p->tensor, 1, (const uint64_t[]){4}, ATSI_TYPE_F32, 0);
        gw_pad(&w, p->alignment);
        gw_int(&w, 0x3f800000u + p->no, 4); /* tells the parts apart */
        gw_fill(&w, 12);
    }
    gw_save(&w, w.n, path);
    gw_free(&w);
}

static void default_parts(struct part p[N_PARTS])
{
    static const char *const tensors[N_PARTS] = {NULL, "b.weight", "c.weight"};
    for (uint32_t i = 0; i < N_PARTS; i++)
        p[i] = (struct part){.no = i,
                             .count = N_PARTS,
                             .total = 2,
                             .tensor = tensors[i],
                             .alignment = i == 2 ? 64 : 32,
                             .count_type = ATSI_META_U16};
}

static void write_all(const struct part p[N_PARTS])
{
    for (uint32_t i = 0; i < N_PARTS; i++)
        write_part(&p[i], part_path(i), i == 0);
}

static void test_whole(void **state)
{
    struct part p[N_PARTS];
    (void)state;
    default_parts(p);
    write_all(p);
    for (uint32_t mode = 0; mode < 3; mode++) {
        struct atsi_loaded *m;
        const struct atsi_loaded_info *info;
        uint32_t bits;
        if (fx_open(part_path(0), mode, false, &m) != ATSI_OK)
            fail_msg("%s", fx_err.msg);
        info = fx_ops->info(m);
        assert_int_equal(info->n_files, N_PARTS);
        assert_int_equal(info->n_tensors, 2);
        assert_int_equal(info->n_meta, 5);
        assert_int_equal(info->file_kind, ATSI_FILE_MODEL);
        for (uint32_t i = 0; i < 2; i++) {
            memcpy(&bits, info->tensors[i]->data, sizeof bits);
            assert_int_equal(bits, 0x3f800001u + i);
        }
        assert_int_equal(gguf_tensor_find(m, "c.weight"), 1);
        fx_ops->close(m);
    }
}

/* One part altered. */
struct split_case {
    struct part with; /* zero members: the default */
    const char *says;
    uint32_t part;
    int status;
};

static void test_disagreements(void **state)
{
    static const struct split_case cases[] = {
        {{.no = 2},
         "00002-of-00003.gguf: key 'split.no' is 2, but by its name it is 1",
         1,
         ATSI_EFORMAT},
        {{.count = 4}, "-00003-of-00003.gguf: key 'split.count' is 4, but 3", 2, ATSI_EFORMAT},
        {{.total = 5}, "key 'split.tensors.count' is 5, but the 3 parts hold 2", 0, ATSI_EFORMAT},
        {{.tensor = "b.weight"}, "tensor 'b.weight' occurs twice", 2, ATSI_EFORMAT},
        {{.count_type = ATSI_META_BOOL}, "key 'split.count': type bool", 0, ATSI_EFORMAT},
        {{.no = 9}, "key 'split.no' is 9, but key 'split.count' only 3", 1, ATSI_EFORMAT},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        const struct part *with = &cases[i].with;
        struct part p[N_PARTS];
        struct atsi_loaded *m;
        default_parts(p);
        p[cases[i].part].no = with->no != 0 ? with->no : p[cases[i].part].no;
        p[cases[i].part].count = with->count != 0 ? with->count : N_PARTS;
        p[cases[i].part].total = with->total != 0 ? with->total : 2;
        if (with->tensor != NULL)
            p[cases[i].part].tensor = with->tensor;
        if (with->count_type != 0)
            p[cases[i].part].count_type = with->count_type;
        write_all(p);
        assert_int_equal(fx_open(part_path(0), ATSI_LOAD_MMAP, false, &m), cases[i].status);
        if (strstr(fx_err.msg, cases[i].says) == NULL)
            fail_msg("case %zu: \"%s\" does not say \"%s\"", i, fx_err.msg, cases[i].says);
    }
}

static void test_later_part_named(void **state)
{
    struct part p[N_PARTS];
    struct atsi_loaded *m;
    (void)state;
    default_parts(p);
    write_all(p);
    assert_int_equal(fx_open(part_path(1), ATSI_LOAD_MMAP, false, &m), ATSI_EINVAL);
    assert_non_null(strstr(fx_err.msg, "part 2 of 3"));
    assert_non_null(strstr(fx_err.msg, "split-00001-of-00003.gguf"));
}

static void test_missing_and_broken_parts(void **state)
{
    struct part p[N_PARTS];
    struct atsi_loaded *m;
    (void)state;
    default_parts(p);
    write_all(p);
    assert_int_equal(truncate(part_path(2), 60), 0);
    assert_int_equal(fx_open(part_path(0), ATSI_LOAD_MMAP, false, &m), ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "split-00003-of-00003.gguf: "));
    assert_int_equal(unlink(part_path(2)), 0);
    assert_int_equal(fx_open(part_path(0), ATSI_LOAD_MMAP, true, &m), ATSI_ENOENT);
    assert_non_null(strstr(fx_err.msg, "split-00003-of-00003.gguf: part 3 of 3 is missing"));
}

static void test_other_names(void **state)
{
    struct part p[N_PARTS];
    struct atsi_loaded *m;
    (void)state;
    default_parts(p);
    write_part(&p[0], fx_path("renamed.gguf"), true);
    assert_int_equal(fx_open(fx_path("renamed.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_EFORMAT);
    assert_non_null(strstr(fx_err.msg, "does not end in -00001-of-00003.gguf"));
    /* counts of 0 and 1 mean a whole file, whatever its name */
    p[0].tensor = "a.weight";
    p[0].count = 0;
    write_part(&p[0], fx_path("renamed.gguf"), true);
    assert_int_equal(fx_open(fx_path("renamed.gguf"), ATSI_LOAD_MMAP, false, &m), ATSI_OK);
    assert_int_equal(fx_ops->info(m)->n_files, 1);
    fx_ops->close(m);
}

static void test_path_pattern(void **state)
{
    static const struct {
        const char *path, *expect; /* of part 12 of 20 */
    } cases[] = {
        {"m-00001-of-00020.gguf", "m-00012-of-00020.gguf"},
        {"/d.x/q-4-of-5-100001-of-100020.gguf", "/d.x/q-4-of-5-00012-of-00020.gguf"},
        {"m-0001-of-00020.gguf", NULL},
        {"m-00001-of-0020.gguf", NULL},
        {"m00001-of-00020.gguf", NULL},
        {"m-00001-of-00020.bin", NULL},
        {"-00001-of-00020.gguf", "-00012-of-00020.gguf"},
        {"00001-of-00020.gguf", NULL},
        {"-of-00020.gguf", NULL},
        {".gguf", NULL},
        {"", NULL},
    };
    (void)state;
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        char *got = gguf_split_path(cases[i].path, 11, 20);
        if (cases[i].expect == NULL)
            assert_null(got);
        else
            assert_string_equal(got, cases[i].expect);
        free(got);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(test_whole),
        cmocka_unit_test(test_disagreements),
        cmocka_unit_test(test_later_part_named),
        cmocka_unit_test(test_missing_and_broken_parts),
        cmocka_unit_test(test_other_names),
        cmocka_unit_test(test_path_pattern),
    };
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
