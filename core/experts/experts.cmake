# SPDX-License-Identifier: Apache-2.0
# Expert caches: routing traces, the cache's books, statistics.
list(APPEND ATSI_CORE_SOURCES
  experts/books.c experts/swaps_check.c experts/stats.c experts/ways.c experts/replay.c
  experts/routing.c experts/routing_file.c experts/routing_watch.c experts/routing_make.c)
