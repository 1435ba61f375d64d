#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# A model file that is cut short while it is in use: one clear error, whichever thread meets it.
#   model_cut.sh ATSINFER SOURCE_DIR
# shellcheck source=tests/e2e/lib.sh
. "$(dirname "$0")/lib.sh"
model=$source/demo/demo-dense-q8_0.gguf

cut_while_running() { # ARGS of run
  cp "$model" model.gguf && chmod u+w model.gguf || exit 1
  : >out
  "$atsinfer" run -m model.gguf -p Once -n 100000 --ignore-eos --set load.pack=off "$@" >out 2>err &
  pid=$!
  while [ ! -s out ] && kill -0 $pid 2>/dev/null; do sleep 0.05; done
  truncate -s 4096 model.gguf
  wait $pid
  got=$?
  why=
  [ $got -eq 1 ] && [ "$(grep -c '^atsinfer: error: a page of a mapped file could not be read' err)" -ge 1 ] ||
    why="exit status $got, expected 1 and the reason"
  verdict "$*" "$why"
}

cut_while_running -t 1
cut_while_running -t 2
finish
