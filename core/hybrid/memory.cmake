# SPDX-License-Identifier: Apache-2.0
# The memory regions of hybrid runs: budget, device region, host region, background packing.
list(APPEND ATSI_CORE_SOURCES
  hybrid/budget.c hybrid/weights.c hybrid/pin.c hybrid/region.c hybrid/region_fit.c
  hybrid/region_load.c hybrid/pack.c hybrid/pack_jobs.c
  hybrid/pack_cache.c hybrid/live.c)
