/* SPDX-License-Identifier: Apache-2.0
 * The builders, one per architecture file. */
#ifndef ARCH_LIST_H
#define ARCH_LIST_H

#include "atsinfer/loader.h"

int arch_llama(struct atsi_loaded *m, struct atsi_err *err);
int arch_qwen2(struct atsi_loaded *m, struct atsi_err *err);
int arch_qwen3(struct atsi_loaded *m, struct atsi_err *err); /* and qwen3moe */
int arch_glm4(struct atsi_loaded *m, struct atsi_err *err);
int arch_gpt_oss(struct atsi_loaded *m, struct atsi_err *err);
int arch_qwen3next(struct atsi_loaded *m, struct atsi_err *err);
int arch_qwen35(struct atsi_loaded *m, struct atsi_err *err); /* and qwen35moe */

#endif
