/* SPDX-License-Identifier: Apache-2.0
 * A temporary folder that a test lives in: working directory, home of settings and data. */
#ifndef ATSI_TESTS_SCRATCH_H
#define ATSI_TESTS_SCRATCH_H

#include <stddef.h>

/* Makes a folder, enters it, points HOME, XDG_CONFIG_HOME (./config), XDG_DATA_HOME (./data) and
 * XDG_CACHE_HOME (./cache) into it and unsets every ATSINFER_ variable.  For cmocka's setup and
 * teardown: 0 is good. */
int scratch_enter(void **state);
int scratch_leave(void **state);

/* Absolute path of `relative` in the folder.  [borrowed until the 8th next call] */
const char *scratch_path(const char *relative);
/* Writes a file, making the folders before it. */
void scratch_write_bytes(const char *relative, const void *bytes, size_t n);
void scratch_write(const char *relative, const char *text);
void scratch_mkdir(const char *relative);

#endif
