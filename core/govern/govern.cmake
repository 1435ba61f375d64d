# SPDX-License-Identifier: Apache-2.0
# Watching the machine, and planning again when it changes.
list(APPEND ATSI_CORE_SOURCES
  govern/sense_host.c govern/sense_nvml.c govern/decide.c govern/governor.c govern/power.c)
