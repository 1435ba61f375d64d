# SPDX-License-Identifier: Apache-2.0
# log, memory, configuration, plugin interface, registry (its fixtures: tests/plugins)
foreach(name log memory conf conf_bad abi registry broken_backend)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_core)
endforeach()
foreach(name conf conf_bad registry broken_backend)
  target_sources(test_${name} PRIVATE scratch.c)
endforeach()
add_dependencies(test_broken_backend fixture_failing_open fixture_lying_probe gguf cpu_ref)

# A setuid program's trust in its environment.
atsinfer_test(test_setuid test_setuid.c scratch.c)
target_link_libraries(test_setuid PRIVATE atsi_core)
add_dependencies(test_setuid fixture_good)

# config and plugins as commands
atsinfer_test(test_settings_cli test_settings_cli.c scratch.c)
target_link_libraries(test_settings_cli PRIVATE PkgConfig::JANSSON)
add_dependencies(test_settings_cli atsinfer_cli gguf cpu_ref fixture_good fixture_failing_open
  fixture_wrong_major fixture_crash_entry)

# Model names in the caches of other programs
atsinfer_test(test_resolve test_resolve.c scratch.c ${PROJECT_SOURCE_DIR}/cli/resolve.c
  ${PROJECT_SOURCE_DIR}/cli/resolve_hf.c ${PROJECT_SOURCE_DIR}/cli/resolve_ollama.c)
target_link_libraries(test_resolve PRIVATE atsi_core PkgConfig::JANSSON)

# The drawing of rounds, without the rest of the command.
atsinfer_test(test_cli_trace test_cli_trace.c scratch.c ${PROJECT_SOURCE_DIR}/cli/trace.c
  ${PROJECT_SOURCE_DIR}/cli/trace_out.c ${PROJECT_SOURCE_DIR}/cli/file.c)
target_link_libraries(test_cli_trace PRIVATE PkgConfig::JANSSON)
atsinfer_test(test_bench_rival test_bench_rival.c ${PROJECT_SOURCE_DIR}/cli/bench_rival.c
  ${PROJECT_SOURCE_DIR}/cli/bench_rival_parse.c ${PROJECT_SOURCE_DIR}/cli/bench_row.c)
target_link_libraries(test_bench_rival PRIVATE PkgConfig::JANSSON m)
atsinfer_test(test_read_loops test_read_loops.c ${PROJECT_SOURCE_DIR}/cli/read_loops.c)
target_link_libraries(test_read_loops PRIVATE atsi_core)
