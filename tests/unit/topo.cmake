# SPDX-License-Identifier: Apache-2.0
# CPU capabilities, topology, worker pool
foreach(name cpu_caps topo cgroup pool)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_core)
endforeach()

# topology and doctor as commands
atsinfer_test(test_machine_cli test_machine_cli.c)
target_link_libraries(test_machine_cli PRIVATE PkgConfig::JANSSON)
add_dependencies(test_machine_cli atsinfer_cli)

# Writes a cpu.caps_file of the running processor; built on request.
add_executable(record_cpuid EXCLUDE_FROM_ALL ${PROJECT_SOURCE_DIR}/tests/data/record_cpuid.c)
target_link_libraries(record_cpuid PRIVATE atsi_flags)

# Builds without hwloc (scripts/lean_build.sh)
atsinfer_test(test_topo_sysfs test_topo_sysfs.c scratch.c ${PROJECT_SOURCE_DIR}/core/topo_sysfs.c)
target_link_libraries(test_topo_sysfs PRIVATE atsi_core)

# When to plan again
atsinfer_test(test_govern test_govern.c scratch.c)
target_link_libraries(test_govern PRIVATE atsi_core)
foreach(name rounds tokens)
  atsinfer_test(test_govern_${name} test_govern_${name}.c govern_bench.c scratch.c)
  target_link_libraries(test_govern_${name} PRIVATE atsi_core m)
  add_dependencies(test_govern_${name} sim policy_dp)
endforeach()
