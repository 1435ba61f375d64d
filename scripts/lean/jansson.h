/* SPDX-License-Identifier: Apache-2.0
 *
 * Stands in for jansson where it is missing (scripts/lean_build.sh): the name that headers of cli/
 * mention.  Sources that use the library are left out there.
 */
#ifndef ATSI_LEAN_JANSSON_H
#define ATSI_LEAN_JANSSON_H

#include <stddef.h>

typedef struct json_t json_t;

#endif
