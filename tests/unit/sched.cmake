# SPDX-License-Identifier: Apache-2.0
# The mathematics of scheduling
add_library(sched_cases OBJECT sched_cases.c)
target_link_libraries(sched_cases PRIVATE atsi_flags atsi_sched)

foreach(name alg1 alg2 chain experts place search timeline)
  atsinfer_test(test_sched_${name} test_sched_${name}.c $<TARGET_OBJECTS:sched_cases>)
  target_link_libraries(test_sched_${name} PRIVATE atsi_sched Threads::Threads m)
endforeach()

# Recorded problems, through the command's reader; the command itself
atsinfer_test(test_sched_vectors test_sched_vectors.c ${PROJECT_SOURCE_DIR}/cli/policy_instance.c
  $<TARGET_OBJECTS:sched_cases>)
target_link_libraries(test_sched_vectors PRIVATE atsi_sched PkgConfig::JANSSON m)
atsinfer_test(test_sched_command test_sched_command.c scratch.c)
target_link_libraries(test_sched_command PRIVATE PkgConfig::JANSSON)
add_dependencies(test_sched_command atsinfer_cli policy_dp policy_static)

# The tables of docs/scheduling.md, measured anew; not a test
add_executable(sched_times sched_times.c $<TARGET_OBJECTS:sched_cases>)
target_compile_definitions(sched_times PRIVATE ATSI_SOURCE_DIR="${PROJECT_SOURCE_DIR}")
target_link_libraries(sched_times PRIVATE atsi_flags atsi_core m)

# The policies, as plugins, under the core's checks
foreach(name policies policy_rounds)
  atsinfer_test(test_${name} test_${name}.c policy_case.c $<TARGET_OBJECTS:sched_cases>)
  target_link_libraries(test_${name} PRIVATE atsi_core Threads::Threads ${CMAKE_DL_LIBS} m)
  add_dependencies(test_${name} policy_dp policy_static)
endforeach()
target_sources(test_policies PRIVATE ${PROJECT_SOURCE_DIR}/cli/policy_instance.c)
target_link_libraries(test_policies PRIVATE PkgConfig::JANSSON)

# Conformance of policies, good ones and hostile ones (tests/plugins adds them); what rounds do with
# the answers of hostile ones.
atsinfer_test(test_conform test_conform.c scratch.c)
target_link_libraries(test_conform PRIVATE PkgConfig::JANSSON)
add_dependencies(test_conform atsinfer_cli policy_dp policy_static sim)
set(sim ${PROJECT_SOURCE_DIR}/plugins/sim)
atsinfer_test(test_policy_faults test_policy_faults.c scratch.c ${sim}/backend.c ${sim}/transfer.c
  ${sim}/world.c ${sim}/load.c)
target_link_libraries(test_policy_faults PRIVATE atsi_core Threads::Threads ${CMAKE_DL_LIBS} m)
add_dependencies(test_policy_faults policy_static)
