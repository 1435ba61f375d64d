# SPDX-License-Identifier: Apache-2.0
list(APPEND ATSI_CORE_SOURCES
  log.c memory.c conf.c conf_keys.c conf_read.c conf_sources.c abi.c scan.c registry.c)
