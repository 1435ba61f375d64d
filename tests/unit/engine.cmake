# SPDX-License-Identifier: Apache-2.0
atsinfer_test(test_values test_values.c)
target_link_libraries(test_values PRIVATE atsi_core)
