# SPDX-License-Identifier: Apache-2.0
# Compiler flags, output folders and the helpers every target uses.

set(CMAKE_C_STANDARD 17)
set(CMAKE_C_STANDARD_REQUIRED ON)
set(CMAKE_C_EXTENSIONS OFF)
set(CMAKE_C_VISIBILITY_PRESET hidden)
set(CMAKE_POSITION_INDEPENDENT_CODE ON)
if(NOT CMAKE_BUILD_TYPE AND NOT CMAKE_CONFIGURATION_TYPES)
  set(CMAKE_BUILD_TYPE Release)
endif()

# Plugins end up in one folder, where the command finds them relative to the core library.
set(CMAKE_RUNTIME_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/bin)
set(CMAKE_LIBRARY_OUTPUT_DIRECTORY ${CMAKE_BINARY_DIR}/lib)
set(ATSINFER_PLUGIN_DIR ${CMAKE_BINARY_DIR}/lib/atsinfer)

add_library(atsi_flags INTERFACE)
target_compile_definitions(atsi_flags INTERFACE _GNU_SOURCE)
target_compile_options(atsi_flags INTERFACE
  -Wall -Wextra -Wpedantic -Wshadow -Wstrict-prototypes -Wmissing-prototypes -Wvla -Wundef
  -Wcast-qual -Wformat=2 -ffp-contract=off -fno-math-errno)
if(ATSINFER_WERROR)
  target_compile_options(atsi_flags INTERFACE -Werror)
endif()
# Instrumented kernels take minutes to optimise fully, for no gain.
set(ATSI_KERNEL_OPT -O3)
if(ATSINFER_SANITIZE)
  set(ATSI_KERNEL_OPT -O1)
  target_compile_options(atsi_flags INTERFACE -fsanitize=${ATSINFER_SANITIZE}
    -fno-sanitize-recover=all -fno-omit-frame-pointer)
  target_link_options(atsi_flags INTERFACE -fsanitize=${ATSINFER_SANITIZE})
endif()

# atsinfer_plugin(NAME sources...): a shared object `atsinfer-NAME.so` with one exported symbol,
# linked to nothing of ours.
function(atsinfer_plugin name)
  add_library(${name} MODULE ${ARGN})
  target_link_libraries(${name} PRIVATE atsi_flags)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR}/include)
  set_target_properties(${name} PROPERTIES PREFIX "atsinfer-"
    LIBRARY_OUTPUT_DIRECTORY ${ATSINFER_PLUGIN_DIR})
  set_property(GLOBAL APPEND PROPERTY ATSINFER_PLUGINS ${name}) # for the installation
  if(NOT ATSINFER_SANITIZE)
    target_link_options(${name} PRIVATE -Wl,-z,defs -Wl,--exclude-libs,ALL)
  endif()
endfunction()

# atsinfer_test(NAME sources...): a cmocka program registered with ctest.
function(atsinfer_test name)
  add_executable(${name} ${ARGN})
  target_link_libraries(${name} PRIVATE atsi_flags PkgConfig::CMOCKA)
  target_include_directories(${name} PRIVATE ${PROJECT_SOURCE_DIR} ${PROJECT_SOURCE_DIR}/include)
  target_compile_definitions(${name} PRIVATE ATSI_SOURCE_DIR="${PROJECT_SOURCE_DIR}"
    ATSI_BINARY_DIR="${CMAKE_BINARY_DIR}")
  add_test(NAME ${name} COMMAND ${name})
  set_tests_properties(${name} PROPERTIES SKIP_RETURN_CODE 77 TIMEOUT 900)
endfunction()
