/* SPDX-License-Identifier: Apache-2.0
 *
 * What plugins/cuda/async.cuh offers, for kernels on the simulated device.
 */
#ifndef CH_ASYNC_CUH
#define CH_ASYNC_CUH

#include "tests/cuda_host/language.cuh"

/* As words, which is how a race between threads is seen. */
static inline void ch_async_land(void *to, const void *from, uint32_t bytes)
{
    for (uint32_t i = 0; i < bytes / 4; i++)
        static_cast<uint32_t *>(to)[i] = from ? static_cast<const uint32_t *>(from)[i] : 0;
}

static inline void async_copy_16(void *to, const void *from, bool there)
{
    if (ch_async_begin(to, there ? from : nullptr, 16))
        ch_async_land(to, there ? from : nullptr, 16);
}

static inline void async_copy_4(void *to, const void *from)
{
    if (ch_async_begin(to, from, 4))
        ch_async_land(to, from, 4);
}

static inline void async_commit()
{
    ch_async_commit();
}

template <int N>
static inline void async_wait()
{
    while (const struct ch_async_copy *c = ch_async_due(N))
        ch_async_land(c->to, c->from, c->bytes);
}

#endif
