# SPDX-License-Identifier: Apache-2.0
# log, memory, configuration, plugin interface, registry (its fixtures: tests/plugins)
foreach(name log memory conf conf_bad abi registry)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_core)
endforeach()
foreach(name conf conf_bad registry)
  target_sources(test_${name} PRIVATE scratch.c)
endforeach()
