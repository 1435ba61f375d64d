/* SPDX-License-Identifier: Apache-2.0
 *
 * Kernels on the simulated device: what threads of a warp, a block and a grid do together, and what
 * is said of those that do not meet.
 */
#include "tests/cuda_host/trial.h"

#include <math.h>
#include <stdlib.h>
#include <string.h>

/* The lane that PTX shfl reads, said another way than the runtime does: by segments. */
static int expected_lane(int kind, int lane, int width)
{
    int first = lane / width * width, in = lane - first;
    switch (kind) {
    case TRIAL_SHFL_REVERSE:
        return first + (31 - lane) % width;
    case TRIAL_SHFL_XOR_5:
        return (lane ^ 5) < first + width ? (lane ^ 5) : lane;
    case TRIAL_SHFL_UP_3:
        return in >= 3 ? lane - 3 : lane;
    case TRIAL_SHFL_DOWN_3:
        return in + 3 < width ? lane + 3 : lane;
    default:
        return lane ^ 1;
    }
}

static void test_shuffles(void **state)
{
    struct trial *t = *state;
    int32_t *d, got[32];
    OK(cudaMalloc((void **)&d, sizeof got));
    for (int kind = TRIAL_SHFL_REVERSE; kind <= TRIAL_SHFL_OTHER_TYPES; kind++)
        for (int width = 2; width <= 32; width *= 2) {
            OK(trial_shuffle(d, kind, width, t->a));
            OK(cudaStreamSynchronize(t->a));
            trial_fetch(got, d, sizeof got);
            for (int lane = 0; lane < 32; lane++) {
                int want = 100 + expected_lane(kind, lane, width);
                assert_int_equal(got[lane], kind == TRIAL_SHFL_OTHER_TYPES ? 4 * want : want);
            }
        }
    OK(cudaFree(d));
}

static void test_votes(void **state)
{
    struct trial *t = *state;
    uint32_t *d, v[TRIAL_VOTES][32];
    OK(cudaMalloc((void **)&d, sizeof v));
    OK(trial_votes(d, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(v, d, sizeof v);
    for (uint32_t lane = 0; lane < 32; lane++) {
        assert_int_equal(v[0][lane], 0x49249249u);
        assert_int_equal(v[1][lane], 1);
        assert_int_equal(v[2][lane], 0);
        assert_int_equal(v[3][lane], 0xffu << lane / 8 * 8);
        assert_int_equal(v[4][lane], 496);
        assert_int_equal((int32_t)v[5][lane], -16);
        assert_int_equal(v[6][lane], 31);
        assert_int_equal(v[7][lane], lane < 16 ? 0xaaaau : 16u);
        assert_int_equal(v[8][lane], lane & 1 ? 0xaaaaaaaau : 0u);
        assert_int_equal(v[9][lane], lane % 16 == 15 ? lane - 15 : lane);
    }
    OK(cudaFree(d));
}

static void test_block_sum(void **state)
{
    struct trial *t = *state;
    enum { N = 1000, BLOCKS = 9 };
    float in[N], got[BLOCKS];
    for (int i = 0; i < N; i++)
        in[i] = (float)i;
    float *d = trial_device(in, N), *out = trial_device(NULL, BLOCKS);
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        OK(trial_block_sum(out, d, N, BLOCKS, dynamic, t->a));
        OK(cudaStreamSynchronize(t->a));
        trial_fetch(got, out, sizeof got);
        for (int i = 0; i < BLOCKS; i++)
            assert_true(got[i] == 499500.0f);
    }
    OK(cudaFree(d));
    OK(cudaFree(out));
}

static void test_barrier_votes(void **state)
{
    struct trial *t = *state;
    static const uint32_t limits[] = {0, 1, 95, 96};
    int32_t *d, got[3];
    OK(cudaMalloc((void **)&d, sizeof got));
    for (int i = 0; i < 4; i++) {
        OK(trial_barrier_votes(d, limits[i], t->a));
        OK(cudaStreamSynchronize(t->a));
        trial_fetch(got, d, sizeof got);
        assert_int_equal(got[0], limits[i] > 0);
        assert_int_equal(got[1], limits[i] == 96);
        assert_int_equal(got[2], limits[i]);
    }
    OK(cudaFree(d));
}

static void test_atomics(void **state)
{
    struct trial *t = *state;
    enum { BLOCKS = 40, THREADS = BLOCKS * 64 };
    uint32_t start[8 + BLOCKS] = {0}, got[8 + BLOCKS], *d;
    unsigned long long *wide, wide_got;
    float *sum, sum_got;
    start[2] = UINT32_MAX;
    start[4] = (uint32_t)-100;
    OK(cudaMalloc((void **)&d, sizeof start));
    OK(cudaMalloc((void **)&sum, sizeof *sum));
    OK(cudaMalloc((void **)&wide, sizeof *wide));
    OK(cudaMemset(sum, 0, sizeof *sum));
    OK(cudaMemset(wide, 0, sizeof *wide));
    OK(cudaMemcpy(d, start, sizeof start, cudaMemcpyHostToDevice));
    OK(trial_atomics(d, sum, wide, BLOCKS, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(got, d, sizeof got);
    trial_fetch(&sum_got, sum, sizeof sum_got);
    trial_fetch(&wide_got, wide, sizeof wide_got);
    assert_int_equal(got[0], THREADS);
    assert_int_equal(got[1], THREADS - 1);
    assert_int_equal(got[2], 1);
    assert_int_equal(got[3], 0xffffffffu);
    assert_int_equal((int32_t)got[4], THREADS - 6);
    assert_true(got[5] > 0 && got[5] == got[6]);
    assert_int_equal(got[7], BLOCKS);
    assert_true(sum_got == 0.5f * THREADS);
    assert_true(wide_got == (unsigned long long)THREADS << 32);
    OK(cudaFree(d));
    OK(cudaFree(sum));
    OK(cudaFree(wide));
}

static int byte_of(uint32_t x, int i, int is_signed)
{
    int b = (int)(x >> 8 * i & 255u);
    return is_signed && b > 127 ? b - 256 : b;
}

static uint32_t dot(uint32_t x, uint32_t y, int x_signed, int y_signed, int c)
{
    int64_t sum = c;
    for (int i = 0; i < 4; i++)
        sum += (int64_t)byte_of(x, i, x_signed) * byte_of(y, i, y_signed);
    return (uint32_t)sum;
}

static uint32_t bits(float x)
{
    uint32_t u;
    memcpy(&u, &x, sizeof u);
    return u;
}

static void check_intrinsics(const uint32_t *o, uint32_t x, uint32_t y)
{
    uint32_t sub = 0, add = 0;
    for (int i = 0; i < 4; i++) {
        sub |= (uint32_t)(byte_of(x, i, 0) - byte_of(y, i, 0) + 256) % 256 << 8 * i;
        add |= (uint32_t)(byte_of(x, i, 0) + byte_of(y, i, 0)) % 256 << 8 * i;
    }
    assert_int_equal(o[0], dot(x, y, 1, 1, -7));
    assert_int_equal(o[1], dot(x, y, 0, 0, 7));
    assert_int_equal(o[2], dot(x, y, 0, 1, 1));
    /* Selector 0x7250: from the low end, bytes 0 of x, 1 of y, 2 of x, 3 of y. */
    assert_int_equal(o[3], (x & 0x00ff00ffu) | (y & 0xff00ff00u));
    assert_int_equal(o[7], sub);
    assert_int_equal(o[8], add);
    assert_int_equal(o[10], bits((float)x * 0.5f));
    assert_int_equal(o[13], x >> 8 | y << 24);
    assert_int_equal(o[15], x > y ? x - y : y - x);
}

static void test_intrinsics(void **state)
{
    struct trial *t = *state;
    static const uint32_t a[] = {0,           1,           0x80808080u, 0x7f7f7f7fu, 0xffffffffu,
                                 0x12345678u, 0x3f000000u, 0x40200000u, 0xc0200000u, 0x7f800000u};
    static const uint32_t b[] = {4,           0xffffffffu, 0x80808080u, 0x80808080u, 0xffffffffu,
                                 0x9abcdef0u, 4,           4,           4,           4};
    enum { N = sizeof a / sizeof *a };
    uint32_t *da, *db, *out, o[N][TRIAL_INTRINSICS];
    OK(cudaMalloc((void **)&da, sizeof a));
    OK(cudaMalloc((void **)&db, sizeof b));
    OK(cudaMalloc((void **)&out, sizeof o));
    OK(cudaMemcpy(da, a, sizeof a, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(db, b, sizeof b, cudaMemcpyHostToDevice));
    OK(trial_intrinsics(out, da, db, N, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(o, out, sizeof o);
    for (int i = 0; i < N; i++)
        check_intrinsics(o[i], a[i], b[i]);
    assert_int_equal(o[5][4], 13); /* bits of 0x12345678 */
    assert_int_equal(o[5][5], 4);
    assert_int_equal(o[5][6], 3);
    assert_int_equal(o[0][5], 0);
    assert_int_equal(o[0][6], 32);
    assert_int_equal((int32_t)o[6][9], 0); /* 0.5 and 2.5 to even */
    assert_int_equal((int32_t)o[7][9], 2);
    assert_int_equal((int32_t)o[8][9], -2);
    assert_int_equal((int32_t)o[9][9], INT32_MAX); /* infinity saturates */
    assert_int_equal((int32_t)o[4][9], 0);         /* not a number */
    assert_int_equal(o[6][14], bits(0.5f));        /* 1 / sqrt(4) */
    assert_int_equal(o[5][11], bits(51.75f));      /* f16 0x5278 */
    OK(cudaFree(da));
    OK(cudaFree(db));
    OK(cudaFree(out));
}

static void test_indices(void **state)
{
    struct trial *t = *state;
    dim3 grid = {3, 2, 2}, block = {5, 4, 3};
    enum { N = 12 * 60 };
    uint32_t *d, got[N], i = 0;
    OK(cudaMalloc((void **)&d, sizeof got));
    OK(trial_indices(d, grid, block, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(got, d, sizeof got);
    for (uint32_t b = 0; b < 12; b++)
        for (uint32_t th = 0; th < 60; th++, i++)
            assert_int_equal(got[i], b % 3 + 10 * (b / 3 % 2) + 100 * (b / 6) + 1000 * (th % 5) +
                                         10000 * (th / 5 % 4) + 100000 * (th / 20));
    OK(cudaFree(d));
}

/* Bad launches say so, and leave nothing behind. */
static void test_launch_limits(void **state)
{
    struct trial *t = *state;
    dim3 one = {1, 1, 1}, many = {1025, 1, 1}, none = {0, 1, 1}, tall = {1, 65536, 1};
    uint32_t *d;
    float *out = trial_device(NULL, 1), got;
    OK(cudaMalloc((void **)&d, 4));
    FAILS(trial_indices(d, one, many, t->a), cudaErrorInvalidConfiguration);
    FAILS(trial_indices(d, none, one, t->a), cudaErrorInvalidConfiguration);
    FAILS(trial_indices(d, tall, one, t->a), cudaErrorInvalidConfiguration);
    FAILS(cudaGetLastError(), cudaErrorInvalidConfiguration);
    OK(cudaGetLastError());
    FAILS(trial_big_shared(out, 48 * 1024 + 4, 0, t->a), cudaErrorInvalidValue);
    FAILS(trial_big_shared(out, 1 << 20, 1, t->a), cudaErrorInvalidValue);
    (void)cudaGetLastError();
    OK(trial_big_shared(out, 100 * 1024, 1, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(&got, out, sizeof got);
    assert_true(got == 25599.0f);
    OK(cudaFree(d));
    OK(cudaFree(out));
}

static void test_gemv(void **state)
{
    struct trial *t = *state;
    enum { N = 512, ROWS = 33 };
    uint8_t *w, *dw = NULL;
    int8_t x[N], *dx;
    float scales[ROWS * N / 32], y[ROWS];
    w = malloc((size_t)ROWS * N / 2);
    assert_non_null(w);
    for (int i = 0; i < ROWS * N / 2; i++)
        w[i] = (uint8_t)(i * 37 + i / 7);
    for (int i = 0; i < N; i++)
        x[i] = (int8_t)(i * 11 % 255 - 127);
    for (int i = 0; i < ROWS * N / 32; i++)
        scales[i] = (float)(1 + i % 4) * 0.25f;
    OK(cudaMalloc((void **)&dw, (size_t)ROWS * N / 2));
    OK(cudaMalloc((void **)&dx, sizeof x));
    OK(cudaMemcpy(dw, w, (size_t)ROWS * N / 2, cudaMemcpyHostToDevice));
    OK(cudaMemcpy(dx, x, sizeof x, cudaMemcpyHostToDevice));
    float *ds = trial_device(scales, ROWS * N / 32), *dy = trial_device(NULL, ROWS);
    OK(trial_gemv(dy, dw, ds, dx, ROWS, N, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(y, dy, sizeof y);
    for (int r = 0; r < ROWS; r++) {
        double want = 0;
        for (int i = 0; i < N; i++) {
            uint8_t byte = w[r * N / 2 + i / 32 * 16 + i % 16];
            int q = (i % 32 < 16 ? byte & 15 : byte >> 4) - 8;
            want += (double)q * x[i] * (double)scales[(r * N + i) / 32];
        }
        assert_true(fabs(want - (double)y[r]) < 0.01);
    }
    OK(cudaFree(dw));
    OK(cudaFree(dx));
    OK(cudaFree(ds));
    OK(cudaFree(dy));
    free(w);
}

/* ---- Kernels that are wrong ---- */

/* After a device exception the context is lost: only a reset helps. */
static void expect_lost(struct trial *t, const char *error)
{
    assert_string_equal(cudaGetErrorName(cudaStreamSynchronize(t->a)), error);
    assert_string_equal(cudaGetErrorName(cudaMemset(NULL, 0, 0)), error);
    assert_string_equal(cudaGetErrorName(cudaGetLastError()), error);
    OK(cudaDeviceReset());
    OK(cudaStreamCreateWithFlags(&t->a, cudaStreamNonBlocking));
    OK(cudaStreamCreateWithFlags(&t->b, cudaStreamNonBlocking));
}

static void test_divergence(void **state)
{
    struct trial *t = *state;
    static const struct {
        cudaError_t (*launch)(float *out, cudaStream_t stream);
        const char *words;
    } faulty[] = {
        {trial_divergent_barrier, "thread (0,0,0): divergent: waits in __syncthreads"},
        {trial_early_exit_barrier, "thread 7 of the block has left the kernel"},
        {trial_two_barriers, "others of its block in __syncthreads"},
        {trial_lonely_shuffle, "thread 20 of the block has left the kernel"},
        {trial_foreign_lane, "reads lane 20, which is not in mask 0x0000ffff"},
    };
    for (size_t i = 0; i < sizeof faulty / sizeof *faulty; i++) {
        float *out = trial_device(NULL, 64);
        OK(faulty[i].launch(out, t->a));
        expect_lost(t, "cudaErrorLaunchFailure");
        trial_reported(t, CUDA_HOST_DIVERGENT, faulty[i].words);
    }
    /* And the workers are none the worse for it. */
    test_block_sum(state);
}

static void test_unwritten_shared(void **state)
{
    struct trial *t = *state;
    float *out = trial_device(NULL, 32), got[32];
    for (int dynamic = 0; dynamic < 2; dynamic++) {
        OK(trial_unwritten_shared(out, dynamic, t->a));
        OK(cudaStreamSynchronize(t->a));
        assert_int_equal(t->control->set("CHECK_READS", "0"), 0);
        trial_fetch(got, out, sizeof got);
        for (int i = 0; i < 32; i++)
            assert_true(isnan(got[i]));
    }
    OK(cudaFree(out));
}

static void test_missing_barrier(void **state)
{
    struct trial *t = *state;
    float in[64], got[128];
    for (int i = 0; i < 64; i++)
        in[i] = (float)i;
    float *d = trial_device(in, 64), *out = trial_device(NULL, 128);
    OK(trial_missing_barrier(out, d, t->a));
    OK(cudaStreamSynchronize(t->a));
    assert_int_equal(t->control->set("CHECK_READS", "0"), 0);
    trial_fetch(got, out, sizeof got);
    int wrong[2] = {0, 0};
    for (int i = 0; i < 128; i++)
        wrong[i / 64] += !(got[i] == (float)(63 - i % 64));
    assert_true(wrong[0] > 0 && wrong[1] > 0); /* whichever way a block runs */
    OK(cudaFree(d));
    OK(cudaFree(out));
}

/* How many of the sums of two stages are wrong. */
static int wrong_sums(struct trial *t, float *out)
{
    float got[64];
    int wrong = 0;
    OK(cudaStreamSynchronize(t->a));
    assert_int_equal(t->control->set("CHECK_READS", "0"), 0);
    trial_fetch(got, out, sizeof got);
    for (int i = 0; i < 64; i++)
        wrong += !(got[i] == (float)(2 * (63 - i) + 64));
    return wrong;
}

static void test_async_copies(void **state)
{
    struct trial *t = *state;
    float in[128];
    for (int i = 0; i < 128; i++)
        in[i] = (float)i;
    float *d = trial_device(in, 128), *out = trial_device(NULL, 64);
    OK(trial_async(out, d, 1, t->a));
    assert_int_equal(wrong_sums(t, out), 0);
    OK(trial_async(out, d, 0, t->a)); /* a missing wait */
    assert_true(wrong_sums(t, out) > 0);
    OK(trial_async_reuse(out, d, 1, t->a));
    assert_int_equal(wrong_sums(t, out), 0);
    OK(trial_async_reuse(out, d, 0, t->a)); /* a place filled while others read it */
    assert_true(wrong_sums(t, out) > 0);
    OK(cudaFree(d));
    OK(cudaFree(out));
}

static void test_stack(void **state)
{
    struct trial *t = *state;
    float *out = trial_device(NULL, 64), got[64];
    OK(trial_deep_stack(out, 60, t->a));
    OK(cudaStreamSynchronize(t->a));
    trial_fetch(got, out, sizeof got);
    for (int i = 1; i < 64; i++)
        assert_true(got[i] == got[0]);
    OK(cudaFree(out));
}

int main(void)
{
#define TRIAL(f) cmocka_unit_test_setup_teardown(f, trial_setup, trial_teardown)
    const struct CMUnitTest tests[] = {
        TRIAL(test_shuffles),
        TRIAL(test_votes),
        TRIAL(test_block_sum),
        TRIAL(test_barrier_votes),
        TRIAL(test_atomics),
        TRIAL(test_intrinsics),
        TRIAL(test_indices),
        TRIAL(test_launch_limits),
        TRIAL(test_gemv),
        TRIAL(test_divergence),
        TRIAL(test_unwritten_shared),
        TRIAL(test_missing_barrier),
        TRIAL(test_async_copies),
        TRIAL(test_stack),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
