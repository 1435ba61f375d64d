/* SPDX-License-Identifier: Apache-2.0
 *
 * CUDA C++ as host C++: qualifiers, built-in variables and launches.  The toolkit's headers give
 * the types; what they leave out for host compilers is added here and in the headers at the end.
 */
#ifndef CH_LANGUAGE_CUH
#define CH_LANGUAGE_CUH

#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <limits>
#include <new>
#include <tuple>
#include <type_traits>

#include <cuda_runtime_api.h>
#include <vector_functions.h>
#include <vector_types.h>

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include "tests/cuda_host/control.h"
#include "tests/cuda_host/device.h"

#undef __global__
#undef __device__
#undef __host__
#undef __shared__
#undef __constant__
#undef __managed__
#undef __grid_constant__
#undef __launch_bounds__
#undef __forceinline__
#undef __noinline__
#define __global__ __attribute__((unused))
#define __device__ __attribute__((unused))
#define __host__
/* A block runs on one operating system thread from start to end, and alone there. */
#define __shared__ static thread_local
#define __constant__
#define __grid_constant__
#define __launch_bounds__(...)
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))

#define threadIdx (ch_self.thread_idx)
#define blockIdx (ch_self.block_idx)
#define blockDim (ch_self.block_dim)
#define gridDim (ch_self.grid_dim)
#define warpSize 32

template <class T>
static inline T *ch_dynamic_shared()
{
    return static_cast<T *>(ch_self.dynamic_shared);
}

template <class... P>
struct ch_args {
    void (*kernel)(P...);
    std::tuple<P...> values;
    const void *pointers[sizeof...(P) + 1];
    uint32_t n_pointers;

    static void call(const void *self)
    {
        const ch_args *a = static_cast<const ch_args *>(self);
        std::apply(a->kernel, a->values);
    }
};

template <class T>
static inline void ch_note_pointer(const void **list, uint32_t *n, const T &value)
{
    if constexpr (std::is_pointer<T>::value)
        list[(*n)++] = static_cast<const void *>(value);
}

template <class... P, class... A>
static inline cudaError_t ch_launch_typed(const char *name, void (*kernel)(P...), dim3 grid,
                                          dim3 block, size_t shared, cudaStream_t stream,
                                          A &&...given)
{
    static_assert((std::is_trivially_copyable<P>::value && ...),
                  "parameters of kernels are copied byte by byte");
    using args = ch_args<P...>;
    ch_call_begins(); /* what follows is the runtime's work too */
    void *place = std::calloc(1, sizeof(args));
    if (!place) {
        ch_call_over();
        return cudaErrorMemoryAllocation;
    }
    args *a = new (place) args{kernel, std::tuple<P...>(static_cast<P>(given)...), {}, 0};
    std::apply([&](const P &...v) { (ch_note_pointer(a->pointers, &a->n_pointers, v), ...); },
               a->values);
    struct ch_kernel k = {};
    k.name = name;
    k.func = reinterpret_cast<const void *>(kernel);
    k.call = args::call;
    k.args = place;
    k.args_size = sizeof(args);
    k.pointers = a->pointers;
    k.n_pointers = a->n_pointers;
    k.grid = grid;
    k.block = block;
    k.shared = shared;
    return ch_launch(&k, stream);
}

/* The forms of <cuda_runtime.h> that take a kernel as it is. */
template <class... P>
static inline cudaError_t cudaFuncSetAttribute(void (*kernel)(P...), enum cudaFuncAttribute attr,
                                               int value)
{
    return cudaFuncSetAttribute(reinterpret_cast<const void *>(kernel), attr, value);
}

template <class... P>
static inline cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr,
                                                void (*kernel)(P...))
{
    return cudaFuncGetAttributes(attr, reinterpret_cast<const void *>(kernel));
}

#include "tests/cuda_host/atomics.cuh"
#include "tests/cuda_host/collective.cuh"
#include "tests/cuda_host/floats.cuh"
#include "tests/cuda_host/integers.cuh"

#endif
