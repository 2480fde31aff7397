#!/usr/bin/env bash
# Writes the reference pages from ODS and from what koila-opt has registered, which
# has to be built with tests: tools/docs.sh
# Compares them with what is committed:  tools/docs.sh --check
#
# They are in docs/reference. The page of all operations is long and goes to
# build/docs/reference/Koila.md (KOILA_BUILD names another build folder); it is
# not committed, and --check sees only that it can be made.
set -euo pipefail
cd "$(dirname "$0")/.."
tblgen=${MLIR_TBLGEN:-/usr/lib/llvm-22/bin/mlir-tblgen}
include=$(dirname "$(dirname "$tblgen")")/include
reference=docs/reference
built=${KOILA_BUILD:-build}/docs/reference
check=false
[ "${1:-}" = --check ] && check=true

drift=0
# page FOLDER NAME GENERATOR SOURCE
page() {
  local fresh
  fresh=$(mktemp)
  "$tblgen" "$3" "${@:5}" -I include -I "$include" "include/koila/$4" >"$fresh"
  settle "$1/$2" "$fresh"
}

# settle PATH FILE: compares what is committed, or moves.
settle() {
  local fresh=$2
  # Blanks at line ends and at the end of the file are tblgen's.
  sed -i -e 's/[[:space:]]*$//' -e :a -e '/^\n*$/{$d;N;ba}' "$fresh"
  if $check; then
    if [[ $1 == "$reference"/* ]] && ! diff -u "$1" "$fresh"; then
      echo "$1 is stale: run tools/docs.sh" >&2
      drift=1
    fi
    rm -f "$fresh"
  else
    mkdir -p "$(dirname "$1")"
    chmod 644 "$fresh"
    mv "$fresh" "$1"
    echo "wrote $1"
  fi
}

page "$built" Koila.md -gen-dialect-doc Dialect/Koila/IR/KoilaAllOps.td -dialect=koila
page "$reference" Passes.md -gen-pass-doc Dialect/Koila/Transforms/Passes.td
page "$reference" Interfaces.md -gen-op-interface-docs Interfaces/KoilaOpInterfaces.td
page "$reference" RandomOp.md -gen-op-interface-docs Interfaces/RandomOp.td
page "$reference" BackwardOperator.md -gen-op-interface-docs Interfaces/BackwardOperator.td
page "$reference" KernelWork.md -gen-op-interface-docs Interfaces/KernelWork.td
page "$reference" WeightedMean.md -gen-op-interface-docs Interfaces/WeightedMean.td

koila_opt=${KOILA_BUILD:-build}/bin/koila-opt
records=$(mktemp) rules=$(mktemp) table=$(mktemp)
"$(dirname "$tblgen")/llvm-tblgen" --dump-json -I include -I "$include" \
  include/koila/Dialect/Koila/IR/KoilaAllOps.td >"$records"
echo 'module {}' | "$koila_opt" --koila-print-rules -o /dev/null 2>"$rules"
python3 tools/dev/operator_coverage.py "$records" "$rules" >"$table"
rm -f "$records" "$rules"
settle "$reference/Coverage.md" "$table"
exit "$drift"
