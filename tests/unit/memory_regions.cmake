# SPDX-License-Identifier: Apache-2.0
# Budget, device region, host region, packing: over a device and a model made for them.
foreach(name budget region weights pack)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_core)
endforeach()
foreach(name region weights pack)
  target_sources(test_${name} PRIVATE memory_fixture.c)
endforeach()
target_sources(test_pack PRIVATE scratch.c)
