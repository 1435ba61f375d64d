/* SPDX-License-Identifier: Apache-2.0
 *
 * Copies from global to shared memory that run beside computing (cp.async, sm_80 and later).  A
 * thread commits the copies it has begun as a group, and waits until all but its last N groups are
 * there; other threads see them after a barrier.  On sm_75, and on the host, a copy is done when it
 * has begun.
 *
 * stream_load_16() reads what nobody else of the multiprocessor will read again.
 */
#ifndef ATSI_CUDA_ASYNC_CUH
#define ATSI_CUDA_ASYNC_CUH

#include <stdint.h>

#include "launch.cuh"

#ifdef __CUDA_ARCH__

static __device__ __forceinline__ uint4 stream_load_16(const void *from)
{
    uint4 v;
    asm("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
        : "=r"(v.x), "=r"(v.y), "=r"(v.z), "=r"(v.w)
        : "l"(from));
    return v;
}

#else

static __device__ __forceinline__ uint4 stream_load_16(const void *from)
{
    return *(const uint4 *)from;
}

#endif
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800

/* 16 bytes, both addresses multiples of that; zeros when !there, and nothing is read then. */
static __device__ __forceinline__ void async_copy_16(void *to, const void *from, bool there)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(at), "l"(from),
                 "r"(there ? 16 : 0)
                 : "memory");
}

/* 4 bytes. */
static __device__ __forceinline__ void async_copy_4(void *to, const void *from)
{
    unsigned at = (unsigned)__cvta_generic_to_shared(to);
    asm volatile("cp.async.ca.shared.global [%0], [%1], 4;" ::"r"(at), "l"(from) : "memory");
}

static __device__ __forceinline__ void async_commit()
{
    asm volatile("cp.async.commit_group;" ::: "memory");
}

template <int N>
static __device__ __forceinline__ void async_wait()
{
    asm volatile("cp.async.wait_group %0;" ::"n"(N) : "memory");
}

#else

static __device__ __forceinline__ void async_copy_16(void *to, const void *from, bool there)
{
    *(uint4 *)to = there ? *(const uint4 *)from : make_uint4(0, 0, 0, 0);
}

static __device__ __forceinline__ void async_copy_4(void *to, const void *from)
{
    *(uint32_t *)to = *(const uint32_t *)from;
}

static __device__ __forceinline__ void async_commit()
{
}

template <int N>
static __device__ __forceinline__ void async_wait()
{
}

#endif
#endif
