# SPDX-License-Identifier: Apache-2.0
# atsinfer_embed_text(SOURCE HEADER NAME FILE ...): a source file with the bytes of files as arrays
# `const char NAME[]`, each ended by a NUL and declared in HEADER; made anew when a file changes.
function(atsinfer_embed_text source header)
  set(pairs ${ARGN})
  set(text "/* Made by cmake/EmbedText.cmake. */\n#include \"${header}\"\n")
  while(pairs)
    list(POP_FRONT pairs name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n"
      bytes "${bytes}")
    string(APPEND text "const char ${name}[] = {\n${bytes}0};\n")
  endwhile()
  file(CONFIGURE OUTPUT ${source} CONTENT "${text}" @ONLY)
endfunction()
