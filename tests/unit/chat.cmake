# SPDX-License-Identifier: Apache-2.0
# The pure parts of `atsinfer chat`; a fake stands for the session.
set(cli ${PROJECT_SOURCE_DIR}/cli)
atsinfer_test(test_chat_think test_chat_think.c ${cli}/chat_think.c)
target_link_libraries(test_chat_think PRIVATE atsi_text)
atsinfer_test(test_chat_input test_chat_input.c ${cli}/chat_input.c)
target_link_libraries(test_chat_input PRIVATE atsi_core)
atsinfer_test(test_chat_talk test_chat_talk.c ${cli}/chat_talk.c)
target_link_libraries(test_chat_talk PRIVATE atsi_text PkgConfig::JANSSON)
atsinfer_test(test_chat_fit test_chat_fit.c ${cli}/chat_fit.c)
atsinfer_test(test_chat_past test_chat_past.c ${cli}/chat_past.c)
