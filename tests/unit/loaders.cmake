# SPDX-License-Identifier: Apache-2.0
# The container of the gguf plugin, driven through its table; the graph builders are replaced by a
# stand-in (gguf_fixture.c).
add_library(gguf_fixture OBJECT gguf_fixture.c gguf_writer.c)
target_link_libraries(gguf_fixture PRIVATE atsi_flags PkgConfig::CMOCKA)
target_include_directories(gguf_fixture PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

foreach(test test_gguf test_gguf_access test_gguf_bad test_gguf_oom test_gguf_split)
  atsinfer_test(${test} ${test}.c $<TARGET_OBJECTS:gguf_fixture> $<TARGET_OBJECTS:gguf_container>)
  target_link_libraries(${test} PRIVATE m)
endforeach()
target_link_options(test_gguf_oom PRIVATE -Wl,--wrap=malloc -Wl,--wrap=calloc -Wl,--wrap=realloc
  -Wl,--wrap=strdup -Wl,--wrap=aligned_alloc)

# The command `inspect` over the same container, with stand-ins for the rest of the command.
atsinfer_test(test_gguf_inspect test_gguf_inspect.c $<TARGET_OBJECTS:gguf_fixture>
  $<TARGET_OBJECTS:gguf_container> ${PROJECT_SOURCE_DIR}/cli/inspect.c
  ${PROJECT_SOURCE_DIR}/cli/inspect_json.c ${PROJECT_SOURCE_DIR}/cli/inspect_text.c
  ${PROJECT_SOURCE_DIR}/text/utf8.c)
target_link_libraries(test_gguf_inspect PRIVATE PkgConfig::JANSSON m)
