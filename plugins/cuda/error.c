/* SPDX-License-Identifier: Apache-2.0
 *
 * Words and status codes for what the CUDA runtime answers.  Some errors end a context: whatever is
 * called afterwards fails as well.  The first one marks the device as lost, and from then on every
 * function answers ATSI_ELOST without asking CUDA.
 */
#include "cuda_plugin.h"

static const char *const op_names[ATSI_OP_COUNT] = {
    [ATSI_OP_EMBED] = "embed",         [ATSI_OP_RMS_NORM] = "rms_norm",
    [ATSI_OP_MATMUL] = "matmul",       [ATSI_OP_ROPE_TABLE] = "rope_table",
    [ATSI_OP_ROPE] = "rope",           [ATSI_OP_ATTN] = "attn",
    [ATSI_OP_SWIGLU] = "swiglu",       [ATSI_OP_ADD] = "add",
    [ATSI_OP_TOPK] = "topk",           [ATSI_OP_MATMUL_ID] = "matmul_id",
    [ATSI_OP_MOE_SUM] = "moe_sum",     [ATSI_OP_GATE] = "gate",
    [ATSI_OP_REGROUP] = "regroup",     [ATSI_OP_CONV] = "conv",
    [ATSI_OP_DELTA_NET] = "delta_net",
};

const char *cuda_op_name(uint32_t kind)
{
    return kind < ATSI_OP_COUNT && op_names[kind] != NULL ? op_names[kind] : "unknown";
}

const char *cuda_op_tensor(const struct atsi_op *op)
{
    const struct atsi_tensor *t = op->weight[0] != NULL ? op->weight[0] : op->dst[0];
    return t != NULL && t->name != NULL ? t->name : "no tensor";
}

bool cuda_is_fatal(cudaError_t e)
{
    switch (e) {
    case cudaErrorIllegalAddress:
    case cudaErrorLaunchFailure:
    case cudaErrorLaunchTimeout:
    case cudaErrorHardwareStackError:
    case cudaErrorIllegalInstruction:
    case cudaErrorMisalignedAddress:
    case cudaErrorInvalidAddressSpace:
    case cudaErrorInvalidPc:
    case cudaErrorAssert:
    case cudaErrorECCUncorrectable:
    case cudaErrorNvlinkUncorrectable:
    case cudaErrorContextIsDestroyed:
    case cudaErrorDeviceUninitialized:
    case cudaErrorCudartUnloading:
    case cudaErrorContained:
    case cudaErrorTensorMemoryLeak:
    case cudaErrorExternalDevice:
    case cudaErrorMpsClientTerminated:
    case cudaErrorUnknown:
        return true;
    default:
        return false;
    }
}

static int status_of(cudaError_t e)
{
    if (cuda_is_fatal(e))
        return ATSI_ELOST;
    switch (e) {
    case cudaErrorMemoryAllocation:
    case cudaErrorLaunchOutOfResources:
        return ATSI_ENOMEM;
    case cudaErrorInvalidValue:
        return ATSI_EINVAL;
    case cudaErrorNotSupported:
        return ATSI_ENOTSUP;
    case cudaErrorNoDevice:
    case cudaErrorInvalidDevice:
    case cudaErrorInsufficientDriver:
    case cudaErrorDevicesUnavailable:
    case cudaErrorInitializationError:
    case cudaErrorSystemNotReady:
    case cudaErrorSystemDriverMismatch:
    case cudaErrorNoKernelImageForDevice:
    case cudaErrorUnsupportedPtxVersion:
        return ATSI_ENODEV;
    default:
        return ATSI_EIO;
    }
}

static void remember_loss(struct atsi_backend *be, cudaError_t e, const char *what)
{
    if (be->lost || !cuda_is_fatal(e))
        return;
    be->lost = true;
    (void)snprintf(be->lost_why, sizeof be->lost_why, "%.250s: %.100s (%.80s)", what,
                   cudaGetErrorString(e), cudaGetErrorName(e));
    be->host->log(be->host->ctx, ATSI_LOG_ERROR, CUDA_PLUGIN_NAME, "device %d (%s) is lost: %s",
                  be->dev.index, be->name, be->lost_why);
}

int cuda_check(struct atsi_backend *be, cudaError_t e, struct atsi_err *err, const char *fmt, ...)
{
    char what[256];
    va_list ap;
    if (e == cudaSuccess)
        return ATSI_OK;
    va_start(ap, fmt);
    (void)vsnprintf(what, sizeof what, fmt, ap);
    va_end(ap);
    (void)cudaGetLastError(); /* or the next launch would seem to have failed */
    remember_loss(be, e, what);
    return atsi_fail(err, status_of(e), CUDA_PLUGIN_NAME ": device %d (%s): %s: %s (%s)",
                     be->dev.index, be->name, what, cudaGetErrorString(e), cudaGetErrorName(e));
}

void cuda_note(struct atsi_backend *be, cudaError_t e, const char *what)
{
    if (e == cudaSuccess)
        return;
    (void)cudaGetLastError(); /* as above */
    remember_loss(be, e, what);
    be->host->log(be->host->ctx, ATSI_LOG_DEBUG, CUDA_PLUGIN_NAME, "device %d: %s: %s",
                  be->dev.index, what, cudaGetErrorName(e));
}

int cuda_enter(struct atsi_backend *be, struct atsi_err *err)
{
    if (be->lost)
        return atsi_fail(err, ATSI_ELOST, CUDA_PLUGIN_NAME ": device %d (%s) was lost: %s",
                         be->dev.index, be->name, be->lost_why);
    return cuda_check(be, cudaSetDevice(be->dev.index), err, "making the device current");
}
