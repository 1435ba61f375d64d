# SPDX-License-Identifier: Apache-2.0
# Kernels called directly, on the simulated device: those of the plugin `cuda_host`, and the
# reference of the CPU backends.
foreach(part small_kernels attn_kernel delta_kernel)
  atsinfer_test(test_cuda_${part} test_${part}.c kernel_trial.c
    ${PROJECT_SOURCE_DIR}/tests/checkkern/backend_fixture.c
    ${PROJECT_SOURCE_DIR}/tests/checkkern/ck_data.c ${PROJECT_SOURCE_DIR}/core/pool.c
    $<TARGET_OBJECTS:cuda_host_kernels> $<TARGET_OBJECTS:cuda_host_runtime>)
  target_link_libraries(test_cuda_${part} PRIVATE cuda_host_headers cpu_common Threads::Threads
    ${CMAKE_DL_LIBS} m)
  set_target_properties(test_cuda_${part} PROPERTIES LINKER_LANGUAGE C)
endforeach()
