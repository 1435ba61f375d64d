# SPDX-License-Identifier: Apache-2.0
# Conformance of policies.
list(APPEND ATSI_CORE_SOURCES
  kit/conform.c kit/kit_data.c kit/kit_seat.c kit/kit_judge.c kit/kit_child.c kit/kit_checks.c
  kit/kit_experts.c kit/kit_quality.c)
