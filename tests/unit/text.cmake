# SPDX-License-Identifier: Apache-2.0
# Tokenizers and the sampler
add_library(text_meta OBJECT text_meta.c)
target_link_libraries(text_meta PRIVATE atsi_flags PkgConfig::CMOCKA)
target_include_directories(text_meta PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

foreach(name tokenizer_spm tokenizer_bpe tokenizer_special tokenizer_detok tokenizer_hostile)
  atsinfer_test(test_${name} test_${name}.c $<TARGET_OBJECTS:text_meta>)
  target_link_libraries(test_${name} PRIVATE atsi_text)
endforeach()

foreach(name tokenizer_pretok text_parts sampler sampler_top stop_string)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_text PkgConfig::UTF8PROC m)
endforeach()

# Options of the command to a sampler and stop strings, with stand-ins for the rest of the command.
atsinfer_test(test_sampling test_sampling.c ${PROJECT_SOURCE_DIR}/cli/sampling.c
  $<TARGET_OBJECTS:text_meta>)
target_link_libraries(test_sampling PRIVATE atsi_text m)

# Chat templates and their interpreter
add_library(jinja_render OBJECT jinja_render.c)
target_link_libraries(jinja_render PRIVATE atsi_flags PkgConfig::CMOCKA PkgConfig::JANSSON)
target_include_directories(jinja_render PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

foreach(name space expr text filters blocks errors)
  atsinfer_test(test_jinja_${name} test_jinja_${name}.c $<TARGET_OBJECTS:jinja_render>)
  target_link_libraries(test_jinja_${name} PRIVATE atsi_text)
endforeach()

find_package(Threads REQUIRED)
atsinfer_test(test_chat_template test_chat_template.c)
target_link_libraries(test_chat_template PRIVATE atsi_text Threads::Threads)
target_link_options(test_chat_template PRIVATE -Wl,--wrap=malloc -Wl,--wrap=calloc
  -Wl,--wrap=realloc)

# The command `template`
atsinfer_test(test_template_cli test_template_cli.c gguf_writer.c scratch.c)
add_dependencies(test_template_cli atsinfer_cli gguf)
