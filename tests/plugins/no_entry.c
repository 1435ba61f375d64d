/* SPDX-License-Identifier: Apache-2.0
 * A shared object that is no plugin: it exports something else. */
#include "atsinfer/status.h"

ATSI_EXPORT int fixture_answer(void);

int fixture_answer(void)
{
    return 42;
}
