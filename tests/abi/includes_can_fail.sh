#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Proves that includes.sh sees each kind of forbidden include, and accepts the allowed ones.
#   includes_can_fail.sh PATH/includes.sh
set -uo pipefail
tree=$(mktemp -d) || exit 1
trap 'rm -rf "$tree"' EXIT

fresh() {
  rm -rf "${tree:?}"/*
  mkdir -p "$tree"/{include/atsinfer,core,text/jinja,sched,panel,cli,loaders/a,loaders/b,plugins/{cpu_common,cpu_x,policy_x,other}}
  touch "$tree"/{include/atsinfer/plugin.h,core/conf.h,text/t.h,sched/s.h,panel/p.h,cli/c.h,loaders/b/b.h,plugins/cpu_common/k.h,plugins/other/o.h}
  put plugins/cpu_x/a.c '"atsinfer/plugin.h"'
}
put() { echo "#include $2" >>"$tree/$1"; }
failed=0
expect() { # words, good or bad, file, include
  fresh
  put "$2" "$3"
  bash "$script" "$tree" >/dev/null
  if [ $? != "$1" ]; then
    echo "$2 including $3: expected status $1"
    failed=1
  fi
}
script=$1
expect 0 plugins/cpu_x/a.c '"../cpu_common/k.h"'
expect 0 plugins/cpu_x/a.c '"k.h"'
expect 0 loaders/a/a.c '"loaders/b/b.h"'
expect 0 core/topo_pick.c '<hwloc.h>'
expect 0 cli/a.c '"text/t.h"'
expect 0 core/a.c '<stdio.h>'
expect 0 core/a.c '"sched/s.h"'
expect 0 plugins/policy_x/a.c '"sched/s.h"'
expect 0 core/a.c '"panel/p.h"'
expect 0 plugins/cpu_x/a.c '"panel/p.h"'
expect 0 text/jinja/a.c '<jansson.h>'
expect 1 plugins/cpu_x/a.c '"core/conf.h"'
expect 1 plugins/cpu_x/a.c '"../../core/conf.h"'
expect 1 plugins/cpu_x/a.c '"../other/o.h"'
expect 1 plugins/other/a.c '"../cpu_common/k.h"'
expect 1 plugins/cpu_common/a.c '"../cpu_x/x.h"'
expect 1 loaders/a/a.c '"core/conf.h"'
expect 1 loaders/a/a.c '"text/t.h"'
expect 1 text/a.c '"core/conf.h"'
expect 1 core/a.c '"text/t.h"'
expect 1 core/a.c '"plugins/cpu_common/k.h"'
expect 1 cli/a.c '"core/conf.h"'
expect 1 include/atsinfer/a.h '"core/conf.h"'
expect 1 core/pool.c '<hwloc.h>'
expect 1 core/registry.c '<ini.h>'
expect 1 cli/a.c '<dlfcn.h>'
expect 1 plugins/cpu_x/a.c '"sched/s.h"'
expect 1 plugins/other/a.c '"panel/p.h"'
expect 1 panel/a.c '"core/conf.h"'
expect 1 sched/a.c '"core/conf.h"'
expect 1 text/t.c '<jansson.h>'
exit "$failed"
