#!/usr/bin/env bash
# The checks for the hand that edits: builds, then runs the tests on IR, the unit
# tests, layers, formatting, and some programs end to end; a few minutes. Then
# clang-tidy over C++ that is not in origin/main yet; up to a minute a file.
#
#   tools/check.sh
#
# tools/test.sh runs everything.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

case "${1:-}" in
"") ;;
-h | --help)
  sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
  ;;
*) koila_die "unknown option '$1' (see --help)" ;;
esac

status=0
"$koila_root/tools/test.sh" --filter \
  '^koila :: (Dialect|Transforms|Analysis|Unit|Plugin|layers|python/(style|layers)|Target/TorchScript/(small|roundtrip|bad-input|guards)\.test)|^koila-unit|^koila :: Docs/generated' ||
  status=1
koila_say "clang-tidy over what changed"
"$koila_python" "$koila_root/tools/dev/check_tidy.py" --changed \
  --jobs "$(koila_jobs)" || status=1
exit "$status"
