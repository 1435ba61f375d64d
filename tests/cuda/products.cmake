# SPDX-License-Identifier: Apache-2.0
# Matrix products, experts and embedding, called directly on the simulated device.
foreach(part matmul_kernel matmul_id_kernel embed_kernel)
  atsinfer_test(test_cuda_${part} test_${part}.c product_trial.c
    ${PROJECT_SOURCE_DIR}/tests/checkkern/ck_data.c
    $<TARGET_OBJECTS:cuda_host_kernels> $<TARGET_OBJECTS:cuda_host_runtime>)
  target_link_libraries(test_cuda_${part} PRIVATE cuda_host_headers cpu_ref_kernels atsi_panel
    Threads::Threads ${CMAKE_DL_LIBS} m)
  set_target_properties(test_cuda_${part} PROPERTIES LINKER_LANGUAGE C)
endforeach()
