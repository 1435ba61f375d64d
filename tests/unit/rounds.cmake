# SPDX-License-Identifier: Apache-2.0
# Rounds on the simulated machine
set(sim ${PROJECT_SOURCE_DIR}/plugins/sim)
set(sim_bench sim_bench.c scratch.c ${sim}/backend.c ${sim}/transfer.c ${sim}/world.c ${sim}/load.c)
foreach(name rounds background)
  atsinfer_test(test_${name} test_${name}.c ${sim_bench})
  target_link_libraries(test_${name} PRIVATE atsi_core Threads::Threads ${CMAKE_DL_LIBS} m)
endforeach()

# The size of prefill rounds
atsinfer_test(test_chunk test_chunk.c)
target_link_libraries(test_chunk PRIVATE atsi_core m)

# Plans under changing costs, on the simulated machine
atsinfer_test(test_replan test_replan.c policy_case.c ${sim_bench} $<TARGET_OBJECTS:sched_cases>)
target_link_libraries(test_replan PRIVATE atsi_core Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(test_replan policy_dp)

# Plans as users ask for them, through the library
atsinfer_test(test_plan test_plan.c scratch.c)
target_link_libraries(test_plan PRIVATE atsinfer)
add_dependencies(test_plan sim policy_dp policy_static)

# Measured costs: tables and files; measuring, on the reference backend and the test accelerator
atsinfer_test(test_costs test_costs.c scratch.c)
target_link_libraries(test_costs PRIVATE atsi_core m)
atsinfer_test(test_threads test_threads.c scratch.c)
target_link_libraries(test_threads PRIVATE atsi_core)
add_dependencies(test_threads gguf cpu_ref)

atsinfer_test(test_measure test_measure.c scratch.c)
target_link_libraries(test_measure PRIVATE atsi_core)
add_dependencies(test_measure gguf cpu_ref twin)

# Routing traces and the books of expert caches
atsinfer_test(test_routing test_routing.c scratch.c)
target_link_libraries(test_routing PRIVATE atsi_core m)
