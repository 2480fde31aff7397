#!/usr/bin/env bash
# Installs what is missing, builds, and runs the main job on a real model: a
# TorchScript file goes in, one that needs a fifth of the memory comes out.
#
#   tools/demo.sh [MODEL]
#
# MODEL is resnet18 (default; 224x224 images, batch 64) or mlp. Files and
# reports go to build/demo. The exit code is 1 if the results differ or the
# measured peak is above the budget.

source "$(dirname "${BASH_SOURCE[0]}")/setup.sh"

model="${1:-resnet18}"
batch=64
case "$model" in
resnet18) input='float32[B,3,224,224]' ;;
mlp) input='float32[B,64]' ;;
-h | --help)
  sed -n '2,/^$/s/^# \{0,1\}//p' "${BASH_SOURCE[0]}"
  exit 0
  ;;
*) koila_die "unknown model '$model'; known: resnet18, mlp" ;;
esac

koila_setup

folder="$koila_build/demo"
mkdir -p "$folder"
export PATH="$koila_build/bin:$PATH"

show() {
  echo >&2
  echo "\$ $*" >&2
  "$@"
}

koila_say "making $model.pt (random weights)"
"$koila_python" "$koila_root/test/models/make_models.py" --output "$folder" "$model"
cd "$folder"

show koila-opt "$model.pt" --input="$input" --batch B=$batch \
  --koila-infer-shapes --koila-peak-memory='format=json output=before.json' \
  -o "$model.mlir"
budget="$("$koila_python" "$koila_root/tools/demo_report.py" budget before.json)"
show koila-opt "$model.pt" --input="$input" --batch B=$batch \
  --koila-compile="budget=$budget" -o "${model}_tiled.pt"
show koila-run "$model.pt" "${model}_tiled.pt" --input="$input" \
  --batch B=$batch --repeat 3 --json >run.json
"$koila_python" "$koila_root/tools/demo_report.py" table run.json "$budget" \
  "$model" "$input" "$batch" "${model}_tiled.pt"
