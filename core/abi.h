/* SPDX-License-Identifier: Apache-2.0
 * Checks a plugin's descriptor and tables against what this core speaks. */
#ifndef ATSI_CORE_ABI_H
#define ATSI_CORE_ABI_H

#include "atsinfer/plugin.h"

/* Everything that can be judged without running plugin code: magic, versions (both named in the
 * message), struct sizes, names, non-NULL required ops of each component's table, parameters that
 * describe themselves.  ATSI_EABI or ATSI_EINVAL with the reason. */
int atsi_abi_check(const struct atsi_plugin *p, struct atsi_err *err);

#endif
