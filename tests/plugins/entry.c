/* SPDX-License-Identifier: Apache-2.0
 *
 * Entries that do anything but return a descriptor; FIXTURE_CRASH_ENTRY,
 * FIXTURE_ENDLESS_ENTRY, FIXTURE_EXIT_ENTRY, FIXTURE_NOT_HERE or FIXTURE_SILENT says what.
 */
#include "atsinfer/plugin.h"

#include <signal.h>
#include <stdlib.h>
#include <unistd.h>

const struct atsi_plugin *atsi_plugin_entry(const struct atsi_host *host, const char **why)
{
    (void)host;
    (void)why;
#if defined(FIXTURE_CRASH_ENTRY)
    (void)signal(SIGSEGV, SIG_DFL); /* a sanitizer would turn the signal into an exit status */
    (void)raise(SIGSEGV);
#elif defined(FIXTURE_ENDLESS_ENTRY)
    for (;;)
        (void)pause();
#elif defined(FIXTURE_EXIT_ENTRY)
    exit(3);
#elif defined(FIXTURE_NOT_HERE)
    *why = "the moon is not full";
#endif
    return NULL;
}
