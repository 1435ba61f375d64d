# SPDX-License-Identifier: Apache-2.0
# Tokenizers and the sampler
add_library(text_meta OBJECT text_meta.c)
target_link_libraries(text_meta PRIVATE atsi_flags PkgConfig::CMOCKA)
target_include_directories(text_meta PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)

foreach(name tokenizer_spm tokenizer_bpe tokenizer_special tokenizer_detok tokenizer_hostile)
  atsinfer_test(test_${name} test_${name}.c $<TARGET_OBJECTS:text_meta>)
  target_link_libraries(test_${name} PRIVATE atsi_text)
endforeach()

foreach(name tokenizer_pretok text_parts sampler)
  atsinfer_test(test_${name} test_${name}.c)
  target_link_libraries(test_${name} PRIVATE atsi_text PkgConfig::UTF8PROC m)
endforeach()
