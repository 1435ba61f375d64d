/* SPDX-License-Identifier: Apache-2.0
 * Topology read from Linux's /sys, for builds without hwloc (ATSINFER_NO_HWLOC). */
#ifndef ATSI_CORE_TOPO_SYSFS_H
#define ATSI_CORE_TOPO_SYSFS_H

#include "atsinfer/atsinfer.h"

/* root: "" for this machine, or a folder with sys/ and proc/ (then every CPU is usable).  What /sys
 * does not say is taken as: a core per CPU, one kind, one node, no caches.  [owned by caller:
 * atsi_topo_sysfs_close]  ATSI_EIO, ATSI_ENOMEM. */
int atsi_topo_sysfs_open(const char *root, struct atsi_topo **out, struct atsi_err *err);
void atsi_topo_sysfs_close(struct atsi_topo *t); /* NULL is allowed */

#endif
