# SPDX-License-Identifier: Apache-2.0
atsinfer_test(test_values test_values.c)
target_link_libraries(test_values PRIVATE atsi_core)

# What a session remembers, over a model and a backend made for it.
atsinfer_test(test_checkpoint test_checkpoint.c fake_session.c)
target_link_libraries(test_checkpoint PRIVATE atsi_core)

atsinfer_test(test_session_file test_session_file.c fake_session.c scratch.c)
target_link_libraries(test_session_file PRIVATE atsi_core)

atsinfer_test(test_session_faults test_session_faults.c fake_session.c scratch.c)
target_link_libraries(test_session_faults PRIVATE atsi_core)
foreach(function malloc calloc pread write fsync close rename fallocate)
  target_link_options(test_session_faults PRIVATE -Wl,--wrap=${function})
endforeach()

# Caches as a description of the machine names them, and answers that do not depend on them.
atsinfer_test(test_caches test_caches.c scratch.c)
target_link_libraries(test_caches PRIVATE atsi_core)
add_dependencies(test_caches gguf cpu_ref)
if(TARGET cpu_avx2)
  add_dependencies(test_caches cpu_avx2 cpu_avx512)
endif()
