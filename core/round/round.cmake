# SPDX-License-Identifier: Apache-2.0
# Scheduling: items, costs, plans, rounds.
list(APPEND ATSI_CORE_SOURCES
  round/work.c round/items.c round/flow.c round/items_graph.c round/items_shape.c round/number_file.c
  round/machine.c round/problem.c round/check.c round/plan.c round/plan_early.c round/exec.c round/record.c
  round/model_source.c round/rounds.c round/attempt.c round/background.c round/rules.c round/sim_run.c round/simulate.c round/trace.c
  round/needs.c round/plan_needs.c round/plan_fit.c round/plan_items.c round/plan_report.c round/plan_file.c round/plan_load.c
  round/bound.c round/caches.c round/sim_experts.c round/sim_routing.c
  round/costs.c round/costs_shape.c round/costs_file.c round/costs_key.c round/costs_machine.c
  round/costs_stream.c round/knee.c round/measure_threads.c
  round/question_measured.c round/measure_here.c round/profile.c round/probe.c round/sim_machine.c
  round/accel.c round/chunk.c round/devices.c round/measure.c round/measure_op.c round/measure_memory.c round/measure_copy.c)
