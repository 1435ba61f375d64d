# SPDX-License-Identifier: Apache-2.0
# The installed tree: command, library and plugins (component `runtime`), headers, CMake package and
# pkg-config files (component `development`).  It may be moved as a whole: the command finds the
# library by RPATH, the library its plugins beside itself, packages their prefix by their own place.
include(CMakePackageConfigHelpers)

file(STRINGS ${PROJECT_SOURCE_DIR}/include/atsinfer/plugin.h abi_lines
  REGEX "^#define ATSI_ABI_(MAJOR|MINOR) ")
foreach(part MAJOR MINOR)
  string(REGEX MATCH "ATSI_ABI_${part} ([0-9]+)" found "${abi_lines}")
  if(NOT found)
    message(FATAL_ERROR "include/atsinfer/plugin.h defines no ATSI_ABI_${part}")
  endif()
  set(ATSINFER_ABI_${part} ${CMAKE_MATCH_1})
endforeach()

set(atsinfer_plugin_folder ${CMAKE_INSTALL_LIBDIR}/atsinfer)
set(atsinfer_package_folder ${CMAKE_INSTALL_LIBDIR}/cmake/atsinfer)
set(atsinfer_pc_folder ${CMAKE_INSTALL_LIBDIR}/pkgconfig)

# What plugins compile against: headers alone, nothing to link.
add_library(atsinfer_plugin_headers INTERFACE)
target_include_directories(atsinfer_plugin_headers INTERFACE
  $<BUILD_INTERFACE:${PROJECT_SOURCE_DIR}/include>
  $<INSTALL_INTERFACE:${CMAKE_INSTALL_INCLUDEDIR}>)
set_target_properties(atsinfer_plugin_headers PROPERTIES EXPORT_NAME plugin)

install(TARGETS atsinfer EXPORT atsinfer-targets
  LIBRARY DESTINATION ${CMAKE_INSTALL_LIBDIR} COMPONENT runtime NAMELINK_COMPONENT development)
install(TARGETS atsinfer_plugin_headers EXPORT atsinfer-targets)
install(TARGETS atsinfer_cli RUNTIME DESTINATION ${CMAKE_INSTALL_BINDIR} COMPONENT runtime)
get_property(atsinfer_plugins GLOBAL PROPERTY ATSINFER_PLUGINS)
install(TARGETS ${atsinfer_plugins}
  LIBRARY DESTINATION ${atsinfer_plugin_folder} COMPONENT runtime)
install(DIRECTORY ${PROJECT_SOURCE_DIR}/include/atsinfer
  DESTINATION ${CMAKE_INSTALL_INCLUDEDIR} COMPONENT development FILES_MATCHING PATTERN "*.h")
install(FILES ${PROJECT_SOURCE_DIR}/atsinfer.ini
  DESTINATION ${CMAKE_INSTALL_DATADIR}/atsinfer COMPONENT runtime)
install(FILES ${PROJECT_SOURCE_DIR}/LICENSE ${PROJECT_SOURCE_DIR}/README.md
  DESTINATION ${CMAKE_INSTALL_DOCDIR} COMPONENT runtime)

# find_package(atsinfer)
configure_package_config_file(${CMAKE_CURRENT_LIST_DIR}/package/atsinfer-config.cmake.in
  ${PROJECT_BINARY_DIR}/package/atsinfer-config.cmake
  INSTALL_DESTINATION ${atsinfer_package_folder} PATH_VARS atsinfer_plugin_folder)
write_basic_package_version_file(${PROJECT_BINARY_DIR}/package/atsinfer-config-version.cmake
  COMPATIBILITY SameMinorVersion)
install(EXPORT atsinfer-targets NAMESPACE atsinfer:: DESTINATION ${atsinfer_package_folder}
  COMPONENT development)
install(FILES ${PROJECT_BINARY_DIR}/package/atsinfer-config.cmake
  ${PROJECT_BINARY_DIR}/package/atsinfer-config-version.cmake
  DESTINATION ${atsinfer_package_folder} COMPONENT development)

# pkg-config.  GNUInstallDirs' absolute folders stay as they are, relative ones follow the prefix,
# and that is found from the place of the file unless its own folder is absolute.
set(pc_prefix ${CMAKE_INSTALL_PREFIX})
if(NOT IS_ABSOLUTE ${atsinfer_pc_folder})
  file(RELATIVE_PATH pc_up /prefix/${atsinfer_pc_folder} /prefix)
  string(REGEX REPLACE "/$" "" pc_up "${pc_up}")
  set(pc_prefix "\${pcfiledir}/${pc_up}")
endif()
foreach(pair libdir=${CMAKE_INSTALL_LIBDIR} includedir=${CMAKE_INSTALL_INCLUDEDIR}
    bindir=${CMAKE_INSTALL_BINDIR})
  string(REGEX MATCH "^([a-z]+)=(.*)$" found ${pair})
  set(pc_${CMAKE_MATCH_1} ${CMAKE_MATCH_2})
  if(NOT IS_ABSOLUTE ${CMAKE_MATCH_2})
    set(pc_${CMAKE_MATCH_1} "\${prefix}/${CMAKE_MATCH_2}")
  endif()
endforeach()
foreach(name atsinfer atsinfer-plugin)
  configure_file(${CMAKE_CURRENT_LIST_DIR}/package/${name}.pc.in
    ${PROJECT_BINARY_DIR}/package/${name}.pc @ONLY)
  install(FILES ${PROJECT_BINARY_DIR}/package/${name}.pc DESTINATION ${atsinfer_pc_folder}
    COMPONENT development)
endforeach()
