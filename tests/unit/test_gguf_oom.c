/* SPDX-License-Identifier: Apache-2.0
 *
 * Memory that runs out at the Nth request, for every N that opening a model makes: always
 * ATSI_ENOMEM with words, never a crash or (under the sanitizers) a leak.  The program is linked
 * with --wrap for the allocating functions. */
#include <stdio.h>
#include <stdlib.h>

#include "gguf_fixture.h"

void *__real_malloc(size_t n);
void *__real_calloc(size_t n, size_t size);
void *__real_realloc(void *p, size_t n);
char *__real_strdup(const char *s);
void *__real_aligned_alloc(size_t align, size_t n);
void *__wrap_malloc(size_t n);
void *__wrap_calloc(size_t n, size_t size);
void *__wrap_realloc(void *p, size_t n);
char *__wrap_strdup(const char *s);
void *__wrap_aligned_alloc(size_t align, size_t n);

static long countdown = -1; /* requests that still succeed; negative: all */

static bool refuse(void)
{
    return countdown >= 0 && countdown-- == 0;
}

void *__wrap_malloc(size_t n)
{
    return refuse() ? NULL : __real_malloc(n);
}

void *__wrap_calloc(size_t n, size_t size)
{
    return refuse() ? NULL : __real_calloc(n, size);
}

void *__wrap_realloc(void *p, size_t n)
{
    return refuse() ? NULL : __real_realloc(p, n);
}

char *__wrap_strdup(const char *s)
{
    return refuse() ? NULL : __real_strdup(s);
}

void *__wrap_aligned_alloc(size_t align, size_t n)
{
    return refuse() ? NULL : __real_aligned_alloc(align, n);
}

/* Opens and builds the graph with the Nth request refused; true when all was granted. */
static bool attempt(const char *path, long n)
{
    const struct atsi_graph *g = NULL;
    struct atsi_loaded *m = NULL;
    bool granted;
    int st;
    countdown = n;
    st = fx_open(path, ATSI_LOAD_MMAP, false, &m);
    if (st == ATSI_OK)
        st = fx_ops->graph(m, &g, &fx_err);
    granted = countdown >= 0; /* else the request N was reached and refused */
    countdown = -1;
    /* One refusal is survived: giving the unused end of the metadata buffer back. */
    if (st != ATSI_OK && (st != ATSI_ENOMEM || strstr(fx_err.msg, "no memory") == NULL))
        fail_msg("request %ld: status %d, message \"%s\"", n, st, fx_err.msg);
    if (st == ATSI_OK)
        assert_int_equal(fx_ops->info(m)->n_tensors, FX_N_TENSORS);
    fx_ops->close(m);
    return granted;
}

static void test_each_request_refused(void **state)
{
    struct gw w = {0};
    long n = 0;
    (void)state;
    fx_model(&w, 3);
    gw_save(&w, w.n, fx_path("valid.gguf"));
    gw_free(&w);
    while (!attempt(fx_path("valid.gguf"), n))
        n++;
    assert_true(n > 10 && n < 1000);
}

int main(void)
{
    const struct CMUnitTest tests[] = {cmocka_unit_test(test_each_request_refused)};
    return cmocka_run_group_tests(tests, fx_setup, fx_teardown);
}
