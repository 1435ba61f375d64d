/* SPDX-License-Identifier: Apache-2.0
 *
 * The packed layout of weights: nothing is lost, nothing is written outside, every byte lies where
 * it is drawn, and parts of a tensor may be packed in any order.
 */
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "drawn.h"
#include "panel/pack.h"
#include "plugins/cpu_common/ref_block.h"

static const uint32_t types[] = {
    ATSI_TYPE_F32,  ATSI_TYPE_F16,    ATSI_TYPE_BF16,   ATSI_TYPE_Q4_0,
    ATSI_TYPE_Q4_1, ATSI_TYPE_Q5_0,   ATSI_TYPE_Q5_1,   ATSI_TYPE_Q8_0,
    ATSI_TYPE_Q2_K, ATSI_TYPE_Q3_K,   ATSI_TYPE_Q4_K,   ATSI_TYPE_Q5_K,
    ATSI_TYPE_Q6_K, ATSI_TYPE_IQ4_NL, ATSI_TYPE_IQ4_XS, ATSI_TYPE_MXFP4};
#define N_TYPES (sizeof types / sizeof types[0])

/* Row lengths in blocks: whole records, short ones, single blocks. */
static const uint64_t lengths[] = {1, 2, 3, 4, 5, 7, 8, 90};
#define N_LENGTHS (sizeof lengths / sizeof lengths[0])

static uint64_t seed = 1;

static uint8_t random_byte(void)
{
    seed = seed * 6364136223846793005U + 1442695040888963407U;
    return (uint8_t)(seed >> 56);
}

/* Memory of `n` random bytes. */
static uint8_t *random_bytes(size_t n)
{
    uint8_t *p = malloc(n);
    assert_non_null(p);
    for (size_t i = 0; i < n; i++)
        p[i] = random_byte();
    return p;
}

static uint64_t elems_of(uint32_t type, uint64_t blocks)
{
    return blocks * atsi_type_info(type)->block_elems;
}

static void sizes_are_those_of_the_file(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        const struct atsi_type_info *ti = atsi_type_info(types[i]);
        const struct atsi_panel_form *f = atsi_panel_form(types[i]);
        assert_non_null(f);
        if (ti->block_elems > 1)
            assert_int_equal(f->head_bytes + 4 * f->n_chunks, ti->block_bytes);
        assert_int_equal(atsi_panel_bytes(types[i], elems_of(types[i], 3)),
                         16 * 3 * ti->block_bytes);
    }
    assert_null(atsi_panel_form(ATSI_TYPE_I32));
    assert_null(atsi_panel_form(4));
    assert_null(atsi_panel_form(ATSI_TYPE_COUNT));
    assert_int_equal(atsi_panel_bytes(ATSI_TYPE_I32, 32), 0);
    assert_int_equal(atsi_panel_bytes(ATSI_TYPE_Q4_K, 128), 0);
    assert_int_equal(atsi_panel_count(31), 1);
}

static void record_offsets_of_the_drawings(void **state)
{
    (void)state;
    struct atsi_panel_place at = atsi_panel_place(ATSI_TYPE_Q6_K, 3, 1);
    assert_int_equal(at.head, 32);
    assert_int_equal(at.body, 3392);
    at = atsi_panel_place(ATSI_TYPE_Q6_K, 3, 2); /* a short record */
    assert_int_equal(at.head, 6720);
    assert_int_equal(at.body, 6752);
    at = atsi_panel_place(ATSI_TYPE_MXFP4, 90, 89);
    assert_int_equal(at.head, 22 * 1088 + 16);
    assert_int_equal(at.body, 22 * 1088 + 32 + 256);
    at = atsi_panel_place(ATSI_TYPE_Q4_K, 2, 1);
    assert_int_equal(at.head, 2304);
    assert_int_equal(at.body, 2304 + 64);
    at = atsi_panel_place(ATSI_TYPE_F16, 5, 3);
    assert_int_equal(at.body, 64 + 2);
}

/* Rows of the file with a gap between them, to panels and back. */
static void nothing_is_lost(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (size_t l = 0; l < N_LENGTHS; l++) {
            uint64_t elems = elems_of(types[i], lengths[l]), row = atsi_row_bytes(types[i], elems);
            uint64_t stride = row + 6, panel = atsi_panel_bytes(types[i], elems);
            uint8_t *from = random_bytes(48 * stride), *to = random_bytes(3 * panel + 64);
            uint8_t *back = random_bytes(48 * stride), guard[64], gap[6], one[sizeof guard];
            memcpy(guard, to + 3 * panel, sizeof guard);
            memcpy(gap, back + row, sizeof gap);
            atsi_panel_pack(types[i], elems, from, stride, 3, to);
            assert_memory_equal(to + 3 * panel, guard, sizeof guard);
            atsi_panel_unpack(types[i], elems, to, 3, back, stride);
            for (uint64_t r = 0; r < 48; r++)
                assert_memory_equal(back + r * stride, from + r * stride, row);
            assert_memory_equal(back + row, gap, sizeof gap);
            /* the last block of a row alone */
            if (atsi_type_info(types[i])->block_bytes <= sizeof one) {
                uint64_t size = atsi_type_info(types[i])->block_bytes;
                atsi_panel_read(types[i], elems, to + panel, 13, lengths[l] - 1, 1, one);
                assert_memory_equal(one, from + 29 * stride + row - size, size);
            }
            free(from);
            free(to);
            free(back);
        }
}

static void check_float(uint32_t type, const struct drawn *d, const uint8_t *row, uint64_t col)
{
    uint32_t bits = 0, size = atsi_type_info(type)->block_bytes;
    memcpy(&bits, row + size * col, size);
    assert_int_equal(d->head[0], bits);
}

/* Bytes of d and of dmin, m or scales_h in a block of the file. */
static void head_of(uint32_t type, const uint8_t *block, uint32_t head[2])
{
    uint32_t size = atsi_panel_form(type)->head_bytes, at = 0;
    if (type == ATSI_TYPE_Q2_K)
        at = 80;
    else if (type == ATSI_TYPE_Q3_K)
        at = 108;
    else if (type == ATSI_TYPE_Q6_K)
        at = 208;
    head[0] = block[at];
    head[1] = 0;
    if (size >= 2)
        head[0] |= (uint32_t)block[at + 1] << 8;
    if (size == 4)
        head[1] = block[at + 2] | (uint32_t)block[at + 3] << 8;
}

static void check_block(uint32_t type, const struct drawn *d, const uint8_t *row, uint64_t col)
{
    const struct atsi_type_info *ti = atsi_type_info(type);
    const uint8_t *block = row + col / ti->block_elems * ti->block_bytes;
    uint32_t e = (uint32_t)(col % ti->block_elems), head[2];
    struct ref_block ref;
    ref_decoder(type)(block, &ref);
    head_of(type, block, head);
    assert_int_equal(d->head[0], head[0]);
    assert_int_equal(d->head[1], head[1]);
    assert_int_equal(d->code, ref.q[e]);
    assert_int_equal(d->scale, ref.sc[e / ref.sub]);
    assert_int_equal(d->min, ref.mn[e / ref.sub]);
}

/* Each element of a panel, looked up where the drawing has it. */
static void every_byte_lies_where_it_is_drawn(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++)
        for (uint64_t blocks = 1; blocks <= 7; blocks += 2) {
            uint64_t elems = elems_of(types[i], blocks), row = atsi_row_bytes(types[i], elems);
            uint8_t *from = random_bytes(16 * row), *to = random_bytes(16 * row);
            atsi_panel_pack(types[i], elems, from, row, 1, to);
            for (uint32_t r = 0; r < 16; r++)
                for (uint64_t c = 0; c < elems; c++) {
                    struct drawn d = drawn_at(types[i], to, elems, r, c);
                    if (atsi_type_info(types[i])->block_elems == 1)
                        check_float(types[i], &d, from + r * row, c);
                    else
                        check_block(types[i], &d, from + r * row, c);
                }
            free(from);
            free(to);
        }
}

/* A stack whose matrices have rows left over, packed part by part from the last to the first. */
static void stacks_are_packed_in_parts(void **state)
{
    (void)state;
    for (size_t i = 0; i < N_TYPES; i++) {
        struct atsi_panel_matrix m = {types[i], elems_of(types[i], 3), 37, 3};
        uint64_t row = atsi_row_bytes(m.type, m.elems), bytes = row * m.rows * m.n;
        uint8_t *from = random_bytes(bytes), *to = random_bytes(bytes), *back = random_bytes(bytes);
        uint8_t *one = random_bytes(row);
        assert_int_equal(atsi_panel_parts(&m), 9);
        for (uint64_t p = 9; p-- > 0;)
            atsi_panel_convert(&m, p, p + 1, 0, from, to);
        for (uint64_t k = 0; k < 3; k++) { /* rows 32..36 as in the file */
            uint64_t at = (37 * k + 32) * row;
            assert_memory_equal(to + at, from + at, 5 * row);
        }
        for (uint64_t r = 0; r < m.rows * m.n; r++) {
            atsi_panel_row(&m, to, r / 37, r % 37, one);
            assert_memory_equal(one, from + r * row, row);
        }
        atsi_panel_convert(&m, 0, 9, 1, to, back);
        assert_memory_equal(back, from, bytes);
        free(from);
        free(to);
        free(back);
        free(one);
    }
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(sizes_are_those_of_the_file),
        cmocka_unit_test(record_offsets_of_the_drawings),
        cmocka_unit_test(nothing_is_lost),
        cmocka_unit_test(every_byte_lies_where_it_is_drawn),
        cmocka_unit_test(stacks_are_packed_in_parts),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
