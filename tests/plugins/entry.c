/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries that do anything but return a descriptor; FIXTURE_CRASH, FIXTURE_ENDLESS, FIXTURE_EXITS,
 * FIXTURE_DECLINES or FIXTURE_SILENT says what.
 */
#include "atsinfer/plugin.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
#if defined(FIXTURE_CRASH)
    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn the signal into an exit status */
    (void)raise(SIGSEGV);
#elif defined(FIXTURE_ENDLESS)
    for (;;)
        (void)pause();
#elif defined(FIXTURE_EXITS)
    exit(7);
#elif defined(FIXTURE_DECLINES)
    *why = "the moon is not full";
#endif
    return NULL;
}
