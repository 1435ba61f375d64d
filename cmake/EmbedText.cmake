# SPDX-License-Identifier: Apache-2.0
# atsinfer_embed_text(HEADER NAME FILE ...): a header with the bytes of files as static arrays
# `NAME`, each ended by a NUL; made anew when a file changes.
function(atsinfer_embed_text header)
  set(pairs ${ARGN})
  set(text "/* Made by cmake/EmbedText.cmake. */\n")
  while(pairs)
    list(POP_FRONT pairs name file)
    set_property(DIRECTORY APPEND PROPERTY CMAKE_CONFIGURE_DEPENDS ${file})
    file(READ ${file} bytes HEX)
    string(REGEX REPLACE "(..)" "0x\\1," bytes "${bytes}")
    string(REGEX REPLACE "(................................................................................)" "\\1\n"
      bytes "${bytes}")
    string(APPEND text "static const char ${name}[] = {\n${bytes}0};\n")
  endwhile()
  file(CONFIGURE OUTPUT ${header} CONTENT "${text}" @ONLY)
endfunction()
