# SPDX-License-Identifier: Apache-2.0
# Sessions that run hybrid: devices, activations, operations, caches, rounds.
list(APPEND ATSI_CORE_SOURCES
  hybrid/devices.c hybrid/values.c hybrid/state.c hybrid/source.c hybrid/source_run.c hybrid/pick.c
  hybrid/question.c hybrid/chunk.c hybrid/setup.c hybrid/seen.c hybrid/again.c hybrid/watch.c
  hybrid/hybrid.c
  hybrid/experts.c hybrid/experts_run.c hybrid/caches.c)
