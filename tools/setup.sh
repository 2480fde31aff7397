# Shared set-up of tools/demo.sh and tools/test.sh; sourced, not run.
#
# koila_setup installs what is missing, makes build/venv, configures and
# builds. Each step looks first and is quick when there is nothing to do.
#
# Environment:
#   KOILA_PYTHON   a Python whose PyTorch 2.13 is to be used; without it,
#                  PyTorch is installed into build/venv
#   KOILA_JOBS     parallel compiles (default: cores, at most one per 2 GiB)

set -Eeuo pipefail

koila_root="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
koila_build="$koila_root/build"
koila_venv="$koila_build/venv"
koila_python="$koila_venv/bin/python"
koila_torch_version=2.13.0
koila_torchvision_version=0.28.0

trap 'koila_on_error "$?" "$BASH_COMMAND" "${BASH_SOURCE[0]##*/}:$LINENO"' ERR

koila_on_error() {
  echo "koila: failed with exit code $1 at $3: $2" >&2
}

koila_say() {
  echo "koila: $*" >&2
}

koila_die() {
  koila_say "error: $*"
  exit 1
}

# Parallel compiles: one per core, and no more than memory allows; files that
# include LibTorch or the dialect take up to 2 GiB each.
koila_jobs() {
  if [[ -n "${KOILA_JOBS:-}" ]]; then
    echo "$KOILA_JOBS"
    return
  fi
  local cores memory_kib limit jobs
  cores="$(nproc)"
  memory_kib="$(awk '$1 == "MemTotal:" {print $2}' /proc/meminfo)"
  limit="$(cat /sys/fs/cgroup/memory.max 2>/dev/null || true)"
  if [[ "$limit" =~ ^[0-9]+$ ]] && ((limit / 1024 < memory_kib)); then
    memory_kib=$((limit / 1024))
  fi
  jobs=$((memory_kib / (2 * 1024 * 1024)))
  ((jobs >= 1)) || jobs=1
  ((jobs <= cores)) || jobs=$cores
  echo "$jobs"
}

koila_install_packages() {
  local wanted=(libmlir-22-dev mlir-22-tools llvm-22-dev llvm-22-tools cmake
    ninja-build ccache g++ python3-venv python3-dev libgtest-dev)
  command -v dpkg >/dev/null ||
    koila_die "dpkg not found; this script knows Debian only (needed:" \
      "${wanted[*]})"
  local package missing=()
  for package in "${wanted[@]}"; do
    if [[ "$(dpkg-query -W -f '${db:Status-Status}' "$package" 2>/dev/null)" != installed ]]; then
      missing+=("$package")
    fi
  done
  ((${#missing[@]})) || return 0
  [[ "$(id -u)" == 0 ]] ||
    koila_die "packages missing; as root: apt-get install ${missing[*]}"
  koila_say "installing packages: ${missing[*]}"
  apt-get -q update >&2
  DEBIAN_FRONTEND=noninteractive apt-get -q install -y \
    --no-install-recommends "${missing[@]}" >&2
}

# Prints the version of a distribution that an interpreter sees; nothing if
# there is none.
koila_python_has() {
  "$1" - "$2" <<'PYTHON'
import importlib.metadata, sys
try:
    print(importlib.metadata.version(sys.argv[1]))
except importlib.metadata.PackageNotFoundError:
    pass
PYTHON
}

# Where the PyTorch of KOILA_PYTHON lies; an error if it is not 2.13.
koila_existing_torch() {
  local version
  command -v "$KOILA_PYTHON" >/dev/null ||
    koila_die "KOILA_PYTHON=$KOILA_PYTHON is no program"
  version="$(koila_python_has "$KOILA_PYTHON" torch)"
  [[ -n "$version" ]] ||
    koila_die "KOILA_PYTHON=$KOILA_PYTHON has no PyTorch; install torch" \
      "$koila_torch_version there, or unset KOILA_PYTHON"
  [[ "$version" == 2.13.* ]] ||
    koila_die "KOILA_PYTHON=$KOILA_PYTHON has PyTorch $version; koila needs" \
      "2.13; unset KOILA_PYTHON to install $koila_torch_version"
  "$KOILA_PYTHON" -c 'import importlib.util, os
print(os.path.dirname(os.path.dirname(importlib.util.find_spec("torch").origin)))'
}

koila_make_venv() {
  local torch_folder="" marker="$koila_venv/koila-python"
  if [[ -n "${KOILA_PYTHON:-}" ]]; then
    torch_folder="$(koila_existing_torch)"
    if [[ -d "$koila_venv" && "$(cat "$marker" 2>/dev/null)" != "$KOILA_PYTHON" ]]; then
      koila_say "build/venv belongs to another Python; making it again"
      rm -rf "$koila_venv"
    fi
  fi
  if [[ ! -x "$koila_python" ]]; then
    koila_say "making the Python environment build/venv"
    mkdir -p "$koila_build"
    if [[ -n "$torch_folder" ]]; then
      "$KOILA_PYTHON" -m venv --system-site-packages "$koila_venv"
      # Also where KOILA_PYTHON is itself a virtual environment.
      "$koila_python" -c 'import sys, sysconfig
with open(sysconfig.get_path("purelib") + "/koila_torch.pth", "w") as file:
    file.write(sys.argv[1] + "\n")' "$torch_folder"
      echo "$KOILA_PYTHON" >"$marker"
    else
      python3 -m venv "$koila_venv"
    fi
  fi

  local have constraint wanted=()
  have="$(koila_python_has "$koila_python" torch)"
  if [[ -n "$have" && "$have" != 2.13.* ]]; then
    koila_say "build/venv has PyTorch $have; replacing it"
    have=""
  fi
  [[ -n "$have" ]] || wanted+=("torch==$koila_torch_version")
  [[ -n "$(koila_python_has "$koila_python" numpy)" ]] || wanted+=(numpy)
  [[ -n "$(koila_python_has "$koila_python" lit)" ]] || wanted+=(lit)
  # The compiled operators of torchvision are not used, its models are.
  [[ "$(koila_python_has "$koila_python" torchvision)" == "$koila_torchvision_version"* ]] ||
    wanted+=("torchvision==$koila_torchvision_version")
  # What checks, builds and draws with the Python package.
  local tool
  for tool in matplotlib mypy nbclient ipykernel pytest ruff scikit-build-core; do
    [[ -n "$(koila_python_has "$koila_python" "$tool")" ]] || wanted+=("$tool")
  done
  # What formats and reads C++, networks of the corpus (docs/results/Corpus.md), data to
  # train on, and the headers of the CUDA that PyTorch 2.13 is built with.
  local library
  for library in clang-format==22.1.8 clang-tidy==22.1.8 timm==1.0.31 transformers==5.23.0 \
    segmentation_models_pytorch==0.6.0 torch_geometric==2.8.1 \
    scikit-learn==1.9.1 nvidia-cuda-runtime==13.0.96 nvidia-nvml-dev==13.0.87; do
    [[ "$(koila_python_has "$koila_python" "${library%==*}")" == "${library#*==}" ]] ||
      wanted+=("$library")
  done
  ((${#wanted[@]})) || return 0
  koila_say "installing Python packages: ${wanted[*]}"
  constraint="$koila_build/constraints.txt"
  echo "torch==${have:-$koila_torch_version}" >"$constraint"
  "$koila_python" -m pip install --disable-pip-version-check -q \
    -c "$constraint" "${wanted[@]}" >&2
}

koila_configure() {
  local prefix cuda options cache="$koila_build/koila-configured"
  # Without importing it: that takes seconds.
  prefix="$("$koila_python" -c 'import importlib.util, os
torch = os.path.dirname(importlib.util.find_spec("torch").origin)
print(os.path.join(torch, "share", "cmake"))')"
  cuda="$("$koila_python" -c 'import importlib.metadata
print(importlib.metadata.distribution("nvidia-nvml-dev").locate_file("nvidia/cu13"))')"
  options=(-G Ninja -DCMAKE_BUILD_TYPE=Release -DKOILA_ENABLE_TORCH=ON
    -DKOILA_ENABLE_TESTS=ON "-DCMAKE_PREFIX_PATH=$prefix"
    "-DPython_EXECUTABLE=$koila_python" "-DCUDAToolkit_ROOT=$cuda")
  if command -v ccache >/dev/null; then
    options+=(-DCMAKE_C_COMPILER_LAUNCHER=ccache
      -DCMAKE_CXX_COMPILER_LAUNCHER=ccache)
  fi
  if [[ -f "$koila_build/build.ninja" &&
    "$(cat "$cache" 2>/dev/null)" == "${options[*]}" ]]; then
    return 0
  fi
  koila_say "configuring build/"
  cmake -S "$koila_root" -B "$koila_build" "${options[@]}" >&2
  echo "${options[*]}" >"$cache"
}

koila_compile() {
  local jobs
  jobs="$(koila_jobs)"
  koila_say "building ($jobs parallel compiles)"
  ninja -C "$koila_build" -j "$jobs" >&2
}

# Makes the package of the build folder importable in build/venv, and the tools
# commands there.
koila_link_package() {
  local folder
  folder="$("$koila_python" -c 'import sysconfig
print(sysconfig.get_path("purelib"))')"
  echo "$koila_build/python" >"$folder/koila.pth"
  ln -sf "$koila_build"/bin/koila-opt "$koila_build"/bin/koila-run \
    "$koila_venv/bin/"
  printf '#!/bin/sh\nexec "%s" -m koila "$@"\n' "$koila_python" \
    >"$koila_venv/bin/koila"
  chmod +x "$koila_venv/bin/koila"
}

koila_setup() {
  koila_install_packages
  koila_make_venv
  koila_configure
  koila_compile
}
