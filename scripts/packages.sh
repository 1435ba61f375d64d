#!/bin/sh
# SPDX-License-Identifier: Apache-2.0
# Installs the Debian/Ubuntu packages named as arguments that are missing.  Needs root or sudo only
# when something is missing.
set -eu

missing=
for p in "$@"; do
  if ! dpkg-query -W -f='${Status}' "$p" 2>/dev/null | grep -q 'ok installed'; then
    missing="$missing $p"
  fi
done
[ -n "$missing" ] || exit 0

if ! command -v apt-get >/dev/null 2>&1; then
  echo "atsinfer: these packages are missing and apt-get is not here to install them:$missing" >&2
  exit 1
fi
as_root=
if [ "$(id -u)" -ne 0 ]; then
  if ! command -v sudo >/dev/null 2>&1; then
    echo "atsinfer: run as root (or install sudo) to install:$missing" >&2
    exit 1
  fi
  as_root="sudo"
fi
echo "atsinfer: installing$missing"
export DEBIAN_FRONTEND=noninteractive
$as_root apt-get -qq update
# shellcheck disable=SC2086 # a list of package names
$as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq -y --no-install-recommends install $missing >/dev/null
