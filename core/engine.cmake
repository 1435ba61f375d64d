# SPDX-License-Identifier: Apache-2.0
list(APPEND ATSI_CORE_SOURCES
  runtime.c model.c values.c session.c session_accel.c session_plan.c session_build.c session_past.c
  session_pack.c session_rows.c session_again.c session_threads.c
  checkpoint.c fingerprint.c line.c newfile.c session_head.c session_file.c
  select.c select_measure.c cache_dir.c)
