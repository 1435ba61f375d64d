/* SPDX-License-Identifier: Apache-2.0
 *
 * Calls about the device, the context and errors.
 */
#include <stdio.h>
#include <string.h>

#include "tests/cuda_host/exec.h"
#include "tests/cuda_host/stream.h"

/* Not the toolkit's library: names and texts of what can happen here. */
#define ERRORS(X)                                                                                  \
    X(cudaSuccess, "no error")                                                                     \
    X(cudaErrorInvalidValue, "invalid argument")                                                   \
    X(cudaErrorMemoryAllocation, "out of memory")                                                  \
    X(cudaErrorInitializationError, "initialization error")                                        \
    X(cudaErrorInvalidConfiguration, "invalid configuration argument")                             \
    X(cudaErrorInvalidPitchValue, "invalid pitch argument")                                        \
    X(cudaErrorInsufficientDriver, "CUDA driver version is insufficient for CUDA runtime version") \
    X(cudaErrorDevicesUnavailable, "CUDA-capable device(s) is/are busy or unavailable")            \
    X(cudaErrorNoDevice, "no CUDA-capable device is detected")                                     \
    X(cudaErrorInvalidDevice, "invalid device ordinal")                                            \
    X(cudaErrorInvalidDeviceFunction, "invalid device function")                                   \
    X(cudaErrorECCUncorrectable, "uncorrectable ECC error encountered")                            \
    X(cudaErrorInvalidResourceHandle, "invalid resource handle")                                   \
    X(cudaErrorIllegalState, "the operation cannot be performed in the present state")             \
    X(cudaErrorNotReady, "device not ready")                                                       \
    X(cudaErrorIllegalAddress, "an illegal memory access was encountered")                         \
    X(cudaErrorLaunchOutOfResources, "too many resources requested for launch")                    \
    X(cudaErrorLaunchTimeout, "the launch timed out and was terminated")                           \
    X(cudaErrorAssert, "device-side assert triggered")                                             \
    X(cudaErrorHostMemoryAlreadyRegistered,                                                        \
      "part or all of the requested memory range is already mapped")                               \
    X(cudaErrorHostMemoryNotRegistered, "pointer does not correspond to a registered memory "      \
                                        "region")                                                  \
    X(cudaErrorHardwareStackError, "hardware stack error")                                         \
    X(cudaErrorIllegalInstruction, "an illegal instruction was encountered")                       \
    X(cudaErrorMisalignedAddress, "misaligned address")                                            \
    X(cudaErrorInvalidAddressSpace, "operation not supported on global/shared address space")      \
    X(cudaErrorInvalidPc, "invalid program counter")                                               \
    X(cudaErrorLaunchFailure, "unspecified launch failure")                                        \
    X(cudaErrorNotPermitted, "operation not permitted")                                            \
    X(cudaErrorNotSupported, "operation not supported")                                            \
    X(cudaErrorStreamCaptureUnsupported, "operation not permitted when stream is capturing")       \
    X(cudaErrorStreamCaptureInvalidated,                                                           \
      "operation failed due to a previous error during capture")                                   \
    X(cudaErrorStreamCaptureMerge, "operation would result in a merge of separate capture "        \
                                   "sequences")                                                    \
    X(cudaErrorStreamCaptureUnmatched, "capture was not ended in the same stream as it began")     \
    X(cudaErrorStreamCaptureUnjoined, "capturing stream has unjoined work")                        \
    X(cudaErrorStreamCaptureIsolation, "dependency created on uncaptured work in another stream")  \
    X(cudaErrorCapturedEvent, "operation not permitted on an event last recorded in a capturing "  \
                              "stream")                                                            \
    X(cudaErrorStreamCaptureWrongThread,                                                           \
      "attempt to terminate a thread-local capture sequence from another thread")                  \
    X(cudaErrorGraphExecUpdateFailure,                                                             \
      "the graph update was not performed because it included changes which violated constraints") \
    X(cudaErrorSymbolNotFound, "named symbol not found")                                           \
    X(cudaErrorUnknown, "unknown error")

static const struct {
    cudaError_t error;
    const char *name, *text;
} errors[] = {
#define ERROR(e, text) {e, #e, text},
    ERRORS(ERROR)
#undef ERROR
};

const char *ch_error_name(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == e)
            return errors[i].name;
    return "unrecognized error code";
}

const char *cudaGetErrorName(cudaError_t e)
{
    return ch_error_name(e);
}

const char *cudaGetErrorString(cudaError_t e)
{
    for (size_t i = 0; i < sizeof errors / sizeof *errors; i++)
        if (errors[i].error == e)
            return errors[i].text;
    return "unrecognized error code";
}

static cudaError_t last_error(void)
{
    cudaError_t lost;
    ch_lock();
    lost = ch_rt.lost;
    ch_unlock();
    ch_self.error_seen = 1;
    return lost ? lost : (cudaError_t)ch_self.last_error;
}

cudaError_t cudaPeekAtLastError(void)
{
    (void)ch_enter("cudaPeekAtLastError", CH_QUIET_CALL);
    cudaError_t e = last_error();
    ch_call_over();
    return e;
}

cudaError_t cudaGetLastError(void)
{
    (void)ch_enter("cudaGetLastError", CH_QUIET_CALL);
    cudaError_t e = last_error();
    ch_self.last_error = cudaSuccess;
    ch_call_over();
    return e;
}

cudaError_t cudaDriverGetVersion(int *version)
{
    (void)ch_enter("cudaDriverGetVersion", CH_QUIET_CALL);
    if (!version)
        return ch_leave("cudaDriverGetVersion", cudaErrorInvalidValue);
    *version = (int)ch_get(CH_DRIVER);
    return cudaSuccess;
}

cudaError_t cudaRuntimeGetVersion(int *version)
{
    (void)ch_enter("cudaRuntimeGetVersion", CH_QUIET_CALL);
    if (!version)
        return ch_leave("cudaRuntimeGetVersion", cudaErrorInvalidValue);
    *version = CUDART_VERSION;
    return cudaSuccess;
}

cudaError_t cudaGetDeviceCount(int *count)
{
    cudaError_t e = ch_enter("cudaGetDeviceCount", CH_ANY);
    if (count)
        *count = e ? 0 : (int)ch_get(CH_DEVICES);
    return ch_leave("cudaGetDeviceCount", e);
}

cudaError_t cudaSetDevice(int device)
{
    cudaError_t e = ch_enter("cudaSetDevice", CH_ANY);
    if (!e && device)
        e = cudaErrorInvalidDevice;
    return ch_leave("cudaSetDevice", e);
}

cudaError_t cudaGetDevice(int *device)
{
    cudaError_t e = ch_enter("cudaGetDevice", CH_ANY);
    if (!e && !device)
        e = cudaErrorInvalidValue;
    if (!e)
        *device = 0;
    return ch_leave("cudaGetDevice", e);
}

/* The most that a block may have of shared memory, opted in, by compute capability (CUDA C++
 * Programming Guide, table of technical specifications). */
static int shared_opt_in(int sm)
{
    if (sm < 80)
        return 64 << 10;
    if (sm == 80 || sm == 87)
        return 163 << 10;
    return sm == 86 || sm == 89 || sm >= 120 ? 99 << 10 : 227 << 10;
}

static void name_device(char *name, size_t size)
{
    (void)snprintf(name, size, "Simulated CUDA device (sm_%d)", (int)ch_get(CH_SM));
}

cudaError_t cudaGetDeviceProperties(struct cudaDeviceProp *p, int device)
{
    cudaError_t e = ch_enter("cudaGetDeviceProperties", CH_ANY);
    if (!e && (!p || device))
        e = p ? cudaErrorInvalidDevice : cudaErrorInvalidValue;
    if (e)
        return ch_leave("cudaGetDeviceProperties", e);
    int sm = (int)ch_get(CH_SM);
    memset(p, 0, sizeof *p);
    name_device(p->name, sizeof p->name);
    p->totalGlobalMem = (size_t)ch_get(CH_MEMORY);
    p->sharedMemPerBlock = 48 << 10;
    p->sharedMemPerBlockOptin = (size_t)shared_opt_in(sm);
    p->sharedMemPerMultiprocessor = (size_t)shared_opt_in(sm) + 1024;
    p->reservedSharedMemPerBlock = 1024;
    p->regsPerBlock = p->regsPerMultiprocessor = 65536;
    p->warpSize = CH_WARP;
    p->maxThreadsPerBlock = CH_MAX_THREADS;
    p->maxThreadsDim[0] = p->maxThreadsDim[1] = 1024;
    p->maxThreadsDim[2] = 64;
    p->maxGridSize[0] = INT32_MAX;
    p->maxGridSize[1] = p->maxGridSize[2] = 65535;
    p->major = sm / 10;
    p->minor = sm % 10;
    p->multiProcessorCount = (int)ch_get(CH_SMS);
    p->maxThreadsPerMultiProcessor = sm == 75 ? 1024 : 2048;
    p->totalConstMem = 64 << 10;
    p->textureAlignment = 512;
    p->l2CacheSize = 4 << 20;
    p->asyncEngineCount = 2;
    p->unifiedAddressing = p->canMapHostMemory = p->concurrentKernels = 1;
    p->streamPrioritiesSupported = 1;
    p->canUseHostPointerForRegisteredMem = p->hostRegisterSupported = 1;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetAttribute(int *value, enum cudaDeviceAttr attr, int device)
{
    cudaError_t e = ch_enter("cudaDeviceGetAttribute", CH_ANY);
    int sm = (int)ch_get(CH_SM), v = 0;
    if (!e && (!value || device))
        e = value ? cudaErrorInvalidDevice : cudaErrorInvalidValue;
    if (e)
        return ch_leave("cudaDeviceGetAttribute", e);
    switch (attr) {
    case cudaDevAttrComputeCapabilityMajor:
        v = sm / 10;
        break;
    case cudaDevAttrComputeCapabilityMinor:
        v = sm % 10;
        break;
    case cudaDevAttrMultiProcessorCount:
        v = (int)ch_get(CH_SMS);
        break;
    case cudaDevAttrMaxThreadsPerBlock:
    case cudaDevAttrMaxBlockDimX:
        v = CH_MAX_THREADS;
        break;
    case cudaDevAttrWarpSize:
        v = CH_WARP;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlock:
        v = 48 << 10;
        break;
    case cudaDevAttrMaxSharedMemoryPerBlockOptin:
        v = shared_opt_in(sm);
        break;
    case cudaDevAttrMaxSharedMemoryPerMultiprocessor:
        v = shared_opt_in(sm) + 1024;
        break;
    case cudaDevAttrMaxThreadsPerMultiProcessor:
        v = sm == 75 ? 1024 : 2048;
        break;
    case cudaDevAttrClockRate: /* kHz */
        v = 1500000;
        break;
    case cudaDevAttrMemoryClockRate:
        v = 5000000;
        break;
    case cudaDevAttrGlobalMemoryBusWidth: /* bits */
        v = 256;
        break;
    case cudaDevAttrL2CacheSize:
        v = 4 << 20;
        break;
    case cudaDevAttrAsyncEngineCount:
        v = 2;
        break;
    case cudaDevAttrUnifiedAddressing:
    case cudaDevAttrCanMapHostMemory:
    case cudaDevAttrConcurrentKernels:
    case cudaDevAttrStreamPrioritiesSupported:
    case cudaDevAttrCanUseHostPointerForRegisteredMem:
    case cudaDevAttrHostRegisterSupported:
        v = 1;
        break;
    default: /* of what the simulated device does not have */
        break;
    }
    *value = v;
    return cudaSuccess;
}

cudaError_t cudaDeviceGetPCIBusId(char *text, int size, int device)
{
    cudaError_t e = ch_enter("cudaDeviceGetPCIBusId", CH_ANY);
    if (!e && (!text || size < 13 || device))
        e = device ? cudaErrorInvalidDevice : cudaErrorInvalidValue;
    if (!e)
        (void)snprintf(text, (size_t)size, "0000:00:00.0");
    return ch_leave("cudaDeviceGetPCIBusId", e);
}

/* Everything of the context goes; it works even after the context was lost. */
cudaError_t cudaDeviceReset(void)
{
    (void)ch_enter("cudaDeviceReset", CH_QUIET_CALL);
    ch_lock();
    ch_rt.lost = cudaErrorUnknown; /* queued operations are not started any more, nor leaks told */
    ch_unlock();
    ch_graphs_end();
    ch_streams_end();
    ch_driver_end(0);
    ch_memory_end(0);
    ch_lock();
    ch_rt.lost = ch_rt.pending = cudaSuccess;
    ch_unlock();
    ch_self.last_error = cudaSuccess;
    return cudaSuccess;
}

cudaError_t cudaFuncSetAttribute(const void *func, enum cudaFuncAttribute attr, int value)
{
    cudaError_t e = ch_enter("cudaFuncSetAttribute", CH_ANY);
    if (!e && (!func || value < 0))
        e = cudaErrorInvalidValue;
    if (!e && attr == cudaFuncAttributeMaxDynamicSharedMemorySize)
        e = ch_func_allow_shared(func, (size_t)value, (size_t)shared_opt_in((int)ch_get(CH_SM)));
    return ch_leave("cudaFuncSetAttribute", e);
}

cudaError_t cudaFuncGetAttributes(struct cudaFuncAttributes *attr, const void *func)
{
    cudaError_t e = ch_enter("cudaFuncGetAttributes", CH_ANY);
    if (!e && (!attr || !func))
        e = cudaErrorInvalidValue;
    if (e)
        return ch_leave("cudaFuncGetAttributes", e);
    memset(attr, 0, sizeof *attr);
    attr->maxThreadsPerBlock = CH_MAX_THREADS;
    attr->numRegs = 32;
    attr->binaryVersion = attr->ptxVersion = (int)ch_get(CH_SM);
    attr->maxDynamicSharedSizeBytes = (int)ch_func_shared(func);
    return cudaSuccess;
}
