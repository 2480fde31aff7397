#!/usr/bin/env bash
# Installs what is missing, builds koila, and makes it importable in build/venv.
#
#   tools/install.sh
#   source build/venv/bin/activate
#
# With KOILA_PYTHON=python3 that environment has the packages of your own Python,
# which needs PyTorch 2.13; without it, PyTorch is installed there. To install
# into another environment, see docs/user/Python.md.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

case "${1:-}" in
"") ;;
-h | --help)
  sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
  ;;
*) koila_die "unknown option '$1' (see --help)" ;;
esac

koila_setup
koila_link_package
koila_say "done; now: source build/venv/bin/activate"
koila_say "then 'import koila' in Python, or 'koila --help' in the shell"
