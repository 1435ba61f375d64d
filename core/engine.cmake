# SPDX-License-Identifier: Apache-2.0
list(APPEND ATSI_CORE_SOURCES
  runtime.c model.c values.c session.c session_build.c select.c select_measure.c)
