#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Who includes whom.  Public headers include public headers; plugins those, their own folder and, the
# CPU ones, cpu_common and panel/ (cpu_amx also cpu_avx512, which it overlays), policies sched/; loaders those and loaders/; text those and text/;
# sched and panel those and themselves; core those, core/, sched/ and panel/; the command all but core
# and plugins.  Some libraries belong to one file.
#   includes.sh SOURCE_DIR
set -uo pipefail
cd "$1" || exit 1
failed=0 n=0

complain() { echo "$1: may not include $2"; failed=1; }

# Sets folder to where the quoted include $2 of file $1 leads: "atsinfer", or a path from the root.
leads_to() {
  local beside=${1%/*}/$2
  case $beside in *..*) beside=$(realpath -m --relative-to=. "$beside") ;; esac
  if [ -e "$beside" ]; then
    folder=${beside%/*}
    case $folder in include/atsinfer) folder=atsinfer ;; esac
  elif [ -e "include/$2" ] || [ -e "$2" ]; then
    folder=${2%/*}
  elif [ -e "plugins/cpu_common/$2" ]; then
    folder=plugins/cpu_common
  else
    folder=nowhere
  fi
}

allowed() { # file, folder
  case $2 in atsinfer) return 0 ;; esac
  case $1 in
    plugins/*)
      local own=${1#plugins/}
      own=plugins/${own%%/*}
      case $2 in
        "$own" | "$own"/*) return 0 ;;
        plugins/cpu_common | panel) case $own in plugins/cpu_*) return 0 ;; esac ;;
        plugins/cpu_avx512) case $own in plugins/cpu_amx) return 0 ;; esac ;; # an overlay over it
        sched) case $own in plugins/policy_*) return 0 ;; esac ;;
      esac
      ;;
    loaders/*) case $2 in loaders/*) return 0 ;; esac ;;
    text/*) case $2 in text | text/*) return 0 ;; esac ;;
    sched/*) case $2 in sched) return 0 ;; esac ;;
    panel/*) case $2 in panel) return 0 ;; esac ;;
    core/*) case $2 in core | core/* | sched | panel) return 0 ;; esac ;;
    cli/*) case $2 in cli | text | sched | panel) return 0 ;; esac ;;
  esac
  return 1
}

while IFS=: read -r file line; do
  n=$((n + 1))
  name=${line#*[\"<]}
  name=${name%%[\">]*}
  case $line in
    *'"'*)
      leads_to "$file" "$name"
      allowed "$file" "$folder" || complain "$file" "\"$name\" ($folder)"
      ;;
    *)
      case $name in
        hwloc.h | hwloc/*) case $file in core/topo*.c) ;; *) complain "$file" "<$name>" ;; esac ;;
        xxhash.h) case $file in core/*) ;; *) complain "$file" "<$name>" ;; esac ;;
        histedit.h) case $file in cli/*) ;; *) complain "$file" "<$name>" ;; esac ;;
        ini.h) case $file in core/conf*.c) ;; *) complain "$file" "<$name>" ;; esac ;;
        dlfcn.h) case $file in core/registry.c | core/scan.c | core/govern/sense_nvml.c) ;; *) complain "$file" "<$name>" ;; esac ;;
        pcre2.h | utf8proc.h) case $file in text/*) ;; *) complain "$file" "<$name>" ;; esac ;;
        jansson.h) case $file in cli/* | text/jinja/* | text/chat_template.[ch]) ;; *) complain "$file" "<$name>" ;; esac ;;
      esac
      ;;
  esac
done < <(grep -rE --include='*.[ch]' '^[[:space:]]*#[[:space:]]*include[[:space:]]*["<]' \
  include core text sched panel loaders plugins cli)
echo "$n includes"
[ "$failed" = 0 ] && [ "$n" -gt 0 ]
