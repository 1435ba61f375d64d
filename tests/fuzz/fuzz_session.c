/* SPDX-License-Identifier: Apache-2.0
 *
 * Fuzzes the loading of session files.  The last byte of an input is no part of the file: it says
 * which checksums are made right first, so that what lies behind them is reached too, and into
 * which of three sessions the file goes.  Whatever is accepted is then used: evaluated on, cut,
 * saved and loaded again. */
#include "core/fingerprint.h"
#include "tests/unit/fake_session.h"

#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>
#include <xxhash.h>

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);

enum { FIX_HEAD = 1, FIX_PARTS = 2, FIX_SIZES = 4, FIXED = 200, PART = 56, N_MODELS = 3 };

static struct atsi_session *sessions[N_MODELS];
static char path[2][64]; /* of the input, and of what is saved again */
static struct atsi_fingerprint prints[N_MODELS];
static int input_fd;

static void open_sessions(void)
{
    static struct fake_model models[N_MODELS];
    struct atsi_runtime *rt = fake_runtime();
    struct atsi_err err = ATSI_ERR_INIT;
    for (uint32_t i = 0; i < N_MODELS; i++) {
        fake_model_init(&models[i], rt, i == 0 ? 0 : 3, i == 2);
        sessions[i] = fake_session(&models[i], 16, 2, ATSI_TYPE_F16);
        if (atsi_model_fingerprint(&models[i].m, &prints[i], &err) != ATSI_OK)
            abort();
    }
    input_fd = memfd_create("input", 0);
    if (input_fd < 0)
        abort();
    (void)snprintf(path[0], sizeof path[0], "/proc/self/fd/%d", input_fd);
    /* Memory, where there is such a file system: flushing to disk takes its time. */
    (void)snprintf(path[1], sizeof path[1], "%s/atsinfer-fuzz-%ld",
                   access("/dev/shm", W_OK) == 0 ? "/dev/shm" : ".", (long)getpid());
}

static uint64_t get(const uint8_t *p, size_t bytes)
{
    uint64_t v = 0;
    memcpy(&v, p, bytes);
    return v;
}

static void put(uint8_t *p, uint64_t v)
{
    memcpy(p, &v, sizeof v);
}

/* Checksum of [at, at + bytes), when that lies in the file. */
static void fix_sum(uint8_t *file, size_t size, size_t *at, uint64_t bytes, uint8_t *sum)
{
    if (*at > size || bytes > size - *at)
        return;
    put(sum, XXH3_64bits(file + *at, (size_t)bytes));
    *at += (size_t)bytes;
}

/* Makes checksums right, as far as the file's own sizes make sense. */
static void repair(uint8_t *file, size_t size, uint32_t what, const struct atsi_fingerprint *model)
{
    uint64_t n_parts, head;
    size_t at;
    if (size < FIXED)
        return;
    n_parts = get(file + 68, 4) + get(file + 72, 4);
    head = FIXED + n_parts * PART + 8;
    if (head > size)
        return;
    at = (size_t)head;
    if ((what & FIX_SIZES) != 0) {
        put(file + 16, size);
        memcpy(file + 12, &head, 4);
    }
    if ((what & FIX_PARTS) != 0) {
        put(file + 24, model->tensors);
        put(file + 32, model->meta);
        put(file + 40, model->weights);
        fix_sum(file, size, &at, get(file + 52, 4) * 4, file + 88);
        fix_sum(file, size, &at, get(file + 80, 8), file + 96);
        for (uint64_t i = 0; i < n_parts; i++) {
            uint8_t *part = file + FIXED + i * PART;
            fix_sum(file, size, &at, get(part + 40, 8), part + 48);
        }
    }
    put(file + head - 8, XXH3_64bits(file, (size_t)head - 8));
}

static void must(bool ok)
{
    if (!ok)
        abort();
}

/* A loaded session works as any other, and a copy of it by way of a file is the same. */
static void use(struct atsi_session *s)
{
    struct atsi_err err = ATSI_ERR_INIT;
    uint32_t n = atsi_session_n_past(s), point;
    float logits[FAKE_VOCAB];
    for (uint32_t i = 0; i < n; i++)
        must(atsi_session_tokens(s)[i] >= 0 && atsi_session_tokens(s)[i] < FAKE_VOCAB);
    must(atsi_session_save(s, path[1], NULL, 0, &err) == ATSI_OK);
    must(fake_eval(s, 1, 5) == (n < 16));
    if (n < 16)
        memcpy(logits, atsi_session_logits(s), sizeof logits);
    must(atsi_session_load(s, path[1], NULL, NULL, &err) == ATSI_OK);
    must(atsi_session_n_past(s) == n && fake_eval(s, 1, 5) == (n < 16));
    must(n == 16 || memcmp(logits, atsi_session_logits(s), sizeof logits) == 0);
    point = atsi_session_rewind_point(s, n / 2);
    must(point <= n / 2 && atsi_session_truncate(s, point, &err) == ATSI_OK);
    must(fake_eval(s, 2, 7));
    must(unlink(path[1]) == 0);
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size)
{
    struct atsi_err err = ATSI_ERR_INIT;
    struct atsi_session *s;
    uint8_t *file = malloc(size + 1);
    void *user = NULL;
    size_t bytes = 0;
    volatile uint8_t sink = 0;
    uint32_t model = 0;
    int rc;
    must(file != NULL);
    if (sessions[0] == NULL)
        open_sessions();
    if (size > 0) {
        memcpy(file, data, --size);
        model = data[size] / 8 % N_MODELS;
        if (data[size] % 8 != 0)
            repair(file, size, data[size] % 8, &prints[model]);
    }
    s = sessions[model];
    must(ftruncate(input_fd, 0) == 0 && pwrite(input_fd, file, size, 0) == (ssize_t)size);
    free(file);
    must(atsi_session_truncate(s, 0, &err) == ATSI_OK && fake_eval(s, 7, 1));
    rc = atsi_session_load(s, path[0], &user, &bytes, &err);
    if (rc != ATSI_OK) {
        must(err.msg[0] != '\0' && user == NULL && bytes == 0 && atsi_session_n_past(s) == 7);
    } else {
        for (size_t i = 0; i < bytes; i++)
            sink = sink ^ ((const uint8_t *)user)[i]; /* all of it is there */
        free(user);
        use(s);
    }
    return 0;
}
