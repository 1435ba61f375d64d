# SPDX-License-Identifier: Apache-2.0
# Scheduling: items, costs, plans, rounds.
list(APPEND ATSI_CORE_SOURCES
  round/work.c round/items.c round/items_graph.c round/items_shape.c round/number_file.c
  round/machine.c round/problem.c round/check.c round/plan.c round/exec.c round/record.c
  round/model_source.c round/rounds.c round/simulate.c round/bound.c round/trace.c)
