#!/usr/bin/env bash
# Emitted files of 20 models on a GPU with plain PyTorch: results, predicted and
# measured bytes, memory limits, time; and whether files that draw random numbers
# for the whole batch draw those of the untiled program (gpu_draws.py). Writes
# docs/results/Gpu.md.
#
#   tools/bench/gpu_checks.sh [--device CARD] [--folder FOLDER] [--models NAME...]
#
#   --device CARD     whose figures are compared (docs/reference/DeviceProfiles.md);
#                     default: h200
#   --folder FOLDER   where the files are kept; default: build/gpu-checks
#   --models NAME...  only these
#
# Builds koila first. Files are compiled without a GPU; where there is none, or
# PyTorch has no CUDA (KOILA_PYTHON chooses another), it says how to go on with the
# folder on a machine that has one, and exits with 0: nothing was measured.

source "$(dirname "${BASH_SOURCE[0]}")/../setup.sh"

device=h200
folder="$koila_build/gpu-checks"
models=()
while (($#)); do
  case "$1" in
  --device | --folder)
    (($# >= 2)) || koila_die "$1 needs a value"
    printf -v "${1#--}" %s "$2"
    shift
    ;;
  --models)
    shift
    (($#)) || koila_die "--models needs names"
    models=(--models "$@")
    break
    ;;
  -h | --help)
    sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
    exit 0
    ;;
  *) koila_die "unknown option '$1' (see --help)" ;;
  esac
  shift
done

koila_setup
checks="$koila_root/tools/bench/gpu_checks.py"
draws="$koila_root/tools/bench/gpu_draws.py"
PYTHONPATH="$koila_build/python" "$koila_python" "$checks" prepare "$folder" \
  --build "$koila_build" --device "$device" "${models[@]}"
"$koila_python" "$draws" prepare "$folder" --build "$koila_build" --device "$device"

if ! "$koila_python" -c 'import sys, torch; sys.exit(not torch.cuda.is_available())'; then
  koila_say "not measured: no GPU here, or a PyTorch without CUDA"
  koila_say "on a machine with one: python gpu_checks.py run $folder --json gpu.json"
  koila_say "and: python gpu_draws.py run $folder --json draws.json"
  koila_say "then here: python gpu_checks.py page gpu.json --draws draws.json" \
    "--write docs/results/Gpu.md"
  exit 0
fi
"$koila_python" "$checks" run "$folder" --json "$folder/gpu.json" \
  --executors plain default --capped resnet50 vit_b_16
"$koila_python" "$draws" run "$folder" --json "$folder/draws.json"
"$koila_python" "$checks" page "$folder/gpu.json" --draws "$folder/draws.json" \
  --write "$koila_root/docs/results/Gpu.md"
koila_say "docs/results/Gpu.md is written"
