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

# Sessions on real backends while their weights are packed.
atsinfer_test(test_pack_session test_pack_session.c scratch.c)
target_link_libraries(test_pack_session PRIVATE atsi_core)
add_dependencies(test_pack_session gguf cpu_ref)
if(TARGET cpu_avx2)
  add_dependencies(test_pack_session cpu_avx2 cpu_avx512)
endif()

atsinfer_test(test_live_budget test_live_budget.c scratch.c)
target_link_libraries(test_live_budget PRIVATE atsi_core)
add_dependencies(test_live_budget gguf cpu_ref)
