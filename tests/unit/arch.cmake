# SPDX-License-Identifier: Apache-2.0
# Architectures through the whole engine, on files made by the tests.
add_library(arch_model OBJECT arch_config.c arch_model.c gguf_writer.c)
target_link_libraries(arch_model PRIVATE atsi_flags PkgConfig::CMOCKA)
target_include_directories(arch_model PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

foreach(name arch_variants arch_hybrid arch_sessions arch_bad arch_flips
        real_shapes)
  atsinfer_test(test_${name} test_${name}.c arch_run.c scratch.c $<TARGET_OBJECTS:arch_model>)
  target_link_libraries(test_${name} PRIVATE atsinfer m)
  add_dependencies(test_${name} gguf cpu_ref)
  if(TARGET cpu_avx2)
    add_dependencies(test_${name} cpu_avx2 cpu_avx512)
  endif()
endforeach()

# asks the command too; its madvise() stands in for the C library's
target_link_libraries(test_real_shapes PRIVATE PkgConfig::JANSSON)
add_dependencies(test_real_shapes atsinfer_cli)
set_target_properties(test_real_shapes PROPERTIES ENABLE_EXPORTS ON)

# Writes the models of tests/fuzz/corpus/gguf; built on request.
add_executable(arch_corpus EXCLUDE_FROM_ALL arch_corpus.c $<TARGET_OBJECTS:arch_model>)
target_link_libraries(arch_corpus PRIVATE atsi_flags m)
target_include_directories(arch_corpus PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
