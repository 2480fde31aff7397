# Configuration of the test suite.
#
# Tools are on the PATH of every test (koila-opt, koila-run, FileCheck, not,
# count, mlir-opt). Substitutions:
#   %python        the Python of build/venv, mostly a fork of one process that has
#                  PyTorch (test/python_server.py)
#   %new-python    the same as a process of its own
#   %make-models   makes models of test/models by name, unless they are there
#   %models        the folder with the files it makes: %models/mlp.pt
#   %pytest        runs the tests of a Python file
#   %plugin        the plugin for the stock mlir-opt
#   %koila-build   the build folder; %cmake, %cxx: what it was built with
#   %clang-format, %clang-tidy   those of build/venv
#   %koila-opt, %koila-run, %mlir-opt   with their paths
# Features:
#   torch          built with the TorchScript target
#   python         built with the Python package
#   torchvision    its models are there
#   scikit-learn   its data are there
#   chromium       a Chromium or Chrome is on the PATH; %chromium is its name
#   long           asked for by --param long=1 (tools/test.sh --long)
#   ground-truth   KOILA_GROUND_TRUTH is set

import os
import shutil
import subprocess
import sys

import lit.formats

config.name = "koila"
config.test_format = lit.formats.ShTest()
config.suffixes = [".mlir", ".test"]
config.excludes = ["Inputs", "models"]
config.test_source_root = os.path.dirname(__file__)
config.test_exec_root = os.path.join(config.koila_build, "test")

bin_folder = os.path.join(config.koila_build, "bin")
models = os.path.join(config.test_exec_root, "models")
make_models = os.path.join(config.test_source_root, "models", "make_models.py")

config.substitutions += [
    ("%koila-opt", os.path.join(bin_folder, "koila-opt")),
    ("%koila-run", os.path.join(bin_folder, "koila-run")),
    ("%koila-build", config.koila_build),
    ("%mlir-opt", os.path.join(config.llvm_tools, "mlir-opt")),
    ("%plugin", os.path.join(config.koila_build, "lib", "KoilaPlugin.so")),
    ("%models", models),
    ("%new-python", config.python),
    ("%llvm-include", os.path.join(os.path.dirname(config.llvm_tools), "include")),
    ("%cmake", config.cmake),
    ("%cxx", config.cxx),
    ("%clang-format", os.path.join(os.path.dirname(config.python), "clang-format")),
    ("%clang-tidy", os.path.join(os.path.dirname(config.python), "clang-tidy")),
]

config.environment["PATH"] = os.pathsep.join(
    [bin_folder, config.llvm_tools, config.environment.get("PATH", "")]
)
config.environment["PYTHONDONTWRITEBYTECODE"] = "1"
# Not those that somebody has measured on this machine.
config.environment["XDG_CACHE_HOME"] = os.path.join(config.koila_build, "test", "cache")
config.environment["PYTHONPATH"] = os.pathsep.join(
    [os.path.join(config.test_source_root, "models"), os.path.join(config.koila_build, "python")]
)
# Part of what a figure depends on.
config.environment["OMP_NUM_THREADS"] = os.environ.get("OMP_NUM_THREADS", "2")
# Threads that wait leave the cores to the tests beside them: spinning takes more
# than the work of small programs.
config.environment["OMP_WAIT_POLICY"] = os.environ.get("OMP_WAIT_POLICY", "PASSIVE")


def is_on(option):
    return option.upper() in ("ON", "1", "TRUE", "YES")


if is_on(config.koila_enable_python):
    config.available_features.add("python")
if is_on(config.koila_enable_torch):
    config.available_features.add("torch")
    # Tests run kernels, and some machines name instructions that fault.
    sys.dont_write_bytecode = True
    sys.path.append(config.test_source_root)
    import instruction_set

    limit = instruction_set.find_limit(config.python)
    config.environment[instruction_set.VARIABLE] = limit
    if limit != instruction_set.FULL:
        lit_config.note(f"oneDNN uses no newer instruction set than {limit}")
    for package in ("torchvision", "scikit-learn"):
        if (
            subprocess.run(
                [config.python, "-c", f"import importlib.metadata as m; m.version('{package}')"],
                stderr=subprocess.DEVNULL,
            ).returncode
            == 0
        ):
            config.available_features.add(package)
for browser in ("chromium", "chromium-browser", "google-chrome"):
    if shutil.which(browser):
        config.available_features.add("chromium")
        config.substitutions.append(("%chromium", shutil.which(browser)))
        break
if lit_config.params.get("long", "") not in ("", "0"):
    config.available_features.add("long")
    # For scripts that check a part in every run.
    config.environment["KOILA_TEST_LONG"] = "1"
if os.environ.get("KOILA_GROUND_TRUTH"):
    config.available_features.add("ground-truth")
    config.environment["KOILA_GROUND_TRUTH"] = os.environ["KOILA_GROUND_TRUTH"]
    config.substitutions.append(("%ground_truth", os.environ["KOILA_GROUND_TRUTH"]))

python = config.python
if "torch" in config.available_features and sys.platform == "linux":
    server = os.path.join(config.test_source_root, "python_server.py")
    name = f"koila-tests-{os.getpid()}"
    subprocess.Popen(
        [config.python, server, name, str(os.getpid())],
        env=config.environment,
        stdin=subprocess.DEVNULL,
        start_new_session=True,
    )
    python = f"{config.python} -I -S {server} --ask {name}"
config.substitutions += [
    ("%make-models", f"{python} {make_models} --output {models}"),
    ("%pytest", f"{python} -m pytest -q -p no:cacheprovider"),
    ("%python", python),
]
