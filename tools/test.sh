#!/usr/bin/env bash
# Installs what is missing, builds, and runs the tests.
#
#   tools/test.sh [--long] [--filter RE]
#
#   --long        also the expensive tests
#   --filter RE   only tests whose name matches
#
# KOILA_GROUND_TRUTH is handed to the tests; those that need it are skipped
# without it. The last line is the summary; the exit code is 1 if a test failed,
# if none ran, or if a file of the checkout changed meanwhile.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

lit_options=()
while (($#)); do
  case "$1" in
  --long) lit_options+=(--param long=1) ;;
  --filter)
    (($# >= 2)) || koila_die "--filter needs a regular expression"
    lit_options+=(--filter "$2")
    shift
    ;;
  --filter=*) lit_options+=(--filter "${1#--filter=}") ;;
  -h | --help)
    sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *) koila_die "unknown option '$1' (see --help)" ;;
  esac
  shift
done

koila_setup

results="$koila_build/test/results.json"
rm -f "$results"
# Tests write into the build folder alone.
tree="$koila_build/test/tree.json"
"$koila_python" "$koila_root/tools/dev/tree_state.py" write "$tree"
koila_say "running the tests"
# lit's own exit code tells less than the summary below, which also fails if
# nothing ran.
lit_status=0
"$koila_python" -c 'from lit.main import main; main()' -sv -j "$(koila_jobs)" \
  --output "$results" "${lit_options[@]}" "$koila_build/test" || lit_status=$?
status=0
"$koila_python" "$koila_root/tools/dev/tree_state.py" compare "$tree" || status=1
"$koila_python" "$koila_root/tools/summarize_tests.py" "$results" "$lit_status" || status=1
exit $status
