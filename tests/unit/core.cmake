# SPDX-License-Identifier: Apache-2.0
atsinfer_test(test_conf test_conf.c)
target_link_libraries(test_conf PRIVATE atsi_core)
atsinfer_test(test_memory test_memory.c)
target_link_libraries(test_memory PRIVATE atsi_core)
