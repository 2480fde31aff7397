#!/usr/bin/env bash
# Writes the reference pages from ODS: tools/docs.sh
# Compares them with what is committed:  tools/docs.sh --check
set -euo pipefail
cd "$(dirname "$0")/.."
tblgen=${MLIR_TBLGEN:-/usr/lib/llvm-22/bin/mlir-tblgen}
include=$(dirname "$(dirname "$tblgen")")/include
check=false
[ "${1:-}" = --check ] && check=true

drift=0
# page NAME GENERATOR SOURCE
page() {
  local fresh
  fresh=$(mktemp)
  "$tblgen" "$2" "${@:4}" -I include -I "$include" "include/koila/$3" >"$fresh"
  settle "$1" "$fresh"
}

# settle NAME FILE: compares or moves.
settle() {
  local fresh=$2
  # Blanks at line ends and at the end of the file are tblgen's.
  sed -i -e 's/[[:space:]]*$//' -e :a -e '/^\n*$/{$d;N;ba}' "$fresh"
  if $check; then
    if ! diff -u "docs/$1" "$fresh"; then
      echo "docs/$1 is stale: run tools/docs.sh" >&2
      drift=1
    fi
    rm -f "$fresh"
  else
    mkdir -p "$(dirname "docs/$1")"
    chmod 644 "$fresh"
    mv "$fresh" "docs/$1"
    echo "wrote docs/$1"
  fi
}

page Dialects/Koila.md -gen-dialect-doc Dialect/Koila/IR/KoilaAllOps.td -dialect=koila
page Passes.md -gen-pass-doc Dialect/Koila/Transforms/Passes.td
page Interfaces.md -gen-op-interface-docs Interfaces/KoilaOpInterfaces.td
page Draws.md -gen-op-interface-docs Interfaces/Draws.td
page WeightedMean.md -gen-op-interface-docs Interfaces/WeightedMean.td

records=$(mktemp) table=$(mktemp)
"$(dirname "$tblgen")/llvm-tblgen" --dump-json -I include -I "$include" \
  include/koila/Dialect/Koila/IR/KoilaAllOps.td >"$records"
python3 tools/coverage.py "$records" >"$table"
rm -f "$records"
settle Coverage.md "$table"
exit "$drift"
