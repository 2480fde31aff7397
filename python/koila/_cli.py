"""The command ``koila``."""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import subprocess
import sys
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

_INPUTS = """\
Inputs, in the order of the arguments or by name:

  --input 'float32[B,3,224,224]'          an image batch; B is the batch
  --input 'ids=int64[B,128]{0:30521}'     by name, with values of 0 to 30520
  --input none --input true --input 3     other arguments

A traced file knows its own, if all leading extents are equal."""

_EXAMPLES = {
    "report": """\
What a call of a TorchScript file needs, and where: a table, and a page.

  koila report model.pt --input 'float32[B,3,224,224]' --batch 64
  koila report model.pt --input 'float32[B,64]' --input 'int64[B]{0:10}' \\
      --batch 64 --loss cross_entropy --optimizer 'adamw(lr=1e-3)'

Of a GPU that need not be there; the snapshot is for PyTorch's viewer of memory,
https://docs.pytorch.org/memory_viz:

  koila report model.pt --input 'float32[B,3,224,224]' --batch 64 \\
      --device h100-80gb-hbm3 --snapshot snapshot.pickle
""",
    "compile": """\
Writes a TorchScript file whose batch runs in tiles that fit a budget. Any
PyTorch or LibTorch runs it, without koila.

  koila compile model.pt -o small.pt --input 'float32[B,3,224,224]' \\
      --batch 64 --budget 2GiB
""",
    "run": """\
Runs a file on made-up tensors and measures it; of two, compares the results.

  koila run model.pt small.pt --input 'float32[B,3,224,224]' --batch 64
""",
    "bench": """\
Compiles a file for each size of tiles, runs all, and compares peak and time.

  koila bench model.pt --input 'float32[B,3,224,224]' --batch 64

Or measures this machine, in half a minute: from then on training steps choose
what they run again by its times.

  koila bench --calibrate
""",
    "profile": """\
Runs a script of Python and says what each of its lines added to the memory of
tensors, and the most that was there while it ran; of the forward() of modules,
and of lines that call one, also what koila predicts. What comes after the
script's name is the script's own.

  koila profile train.py --epochs 1
  koila profile --measure-only train.py
  koila profile -o memory.html train.py
""",
    "check-op": """\
Runs an operator and compares what koila says of it with what it does: shapes,
storage, the blocks that it allocates and frees, those that autograd keeps, the
bytes that its backward pass holds, and samples alone with samples together.
Prints the first call that differs. Exit code 1 if something is wrong.

Of PyTorch's operators, random calls, or calls of given inputs:

  koila check-op aten::topk
  koila check-op aten::add.Tensor --calls 200 --threads 4
  koila check-op aten::relu --input 'float32[B,3,32,32]'

Of an operator with rules of its own (koila.register):

  koila check-op mylib::scaled_gelu --import my_rules.py
  koila check-op mylib::scaled_gelu --import my_package.rules \\
      --input 'float32[B,64]' --input 2.5

Inputs, in the order of the operator's arguments: float32[B,64], B being the
batch; int64[B]{0:10}, values of 0 to 9; numbers, true, false, none, 'text', and
lists as [1, 2]. Without them koila draws calls, or makes up some that an operator
with rules of its own takes.
""",
}


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns its exit code: 0 done, 1 error or refusal."""
    for stream in (sys.stdout, sys.stderr):
        # What a terminal cannot show is no reason to stop.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    parser = _make_parser()
    try:
        options = parser.parse_args(arguments)
    except SystemExit as stop:
        # A mistake in the command is an error like any other.
        return 1 if stop.code else 0
    # Not before: --help need not wait for PyTorch.
    from koila._errors import KoilaError, KoilaWarning
    from koila._outputs import end_by_signals

    commands = {
        "report": _report,
        "compile": _compile,
        "run": _run,
        "bench": _bench,
        "profile": _profile,
        "check-op": _check_op,
    }
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        # What a command has to say does not depend on PYTHONWARNINGS.
        warnings.simplefilter("always", KoilaWarning)
        warnings.showwarning = lambda message, *_, **__: _say("warning", str(message))
        try:
            end_by_signals()
            return commands[options.command](options)
        except KoilaError as error:
            _say("error", str(error))
        except BrokenPipeError:
            # Nobody reads on; Python must not complain when it closes stdout.
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        except OSError as error:
            _say("error", str(error))
        except KeyboardInterrupt:
            _say("error", "interrupted")
    return 1


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="koila",
        description="koila: what a PyTorch program needs, and batches that fit.",
        epilog="koila COMMAND --help has examples.",
    )
    commands = parser.add_subparsers(dest="command", required=True, metavar="COMMAND")

    def add(name: str, summary: str) -> argparse.ArgumentParser:
        command = commands.add_parser(
            name,
            help=summary,
            description=_EXAMPLES[name],
            epilog=_INPUTS,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        model = command.add_argument("model", metavar="MODEL.pt", help="a TorchScript file")
        if name == "bench":
            model.nargs = "?"
        if name == "run":
            command.add_argument("other", nargs="?", metavar="OTHER.pt", help="one to compare with")
        command.add_argument(
            "--input", action="append", default=[], metavar="SPEC", help="see below; repeated"
        )
        needed = "" if name == "report" else " (needed)"
        command.add_argument("--batch", type=_positive, metavar="N", help=f"its size{needed}")
        command.add_argument("--threads", type=_threads, metavar="N", help="threads of the run")
        command.add_argument("--json", action="store_true", help="JSON on stdout, and nothing else")
        for option, what in (
            ("library", "operators that the program calls; repeated"),
            ("extension", "koila's rules for them (docs/user/Extensions.md); repeated"),
        ):
            command.add_argument(
                f"--load-{option}", action="append", default=[], metavar="FILE", help=what
            )
        return command

    def add_training(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--mode", choices=["inference", "forward-with-grad", "train"], help="what runs"
        )
        command.add_argument(
            "--loss", metavar="NAME", help="of a training step, as cross_entropy; one more --input"
        )
        command.add_argument("--optimizer", metavar="NAME", help="as 'adamw(lr=1e-3)'")

    def add_import(command: argparse.ArgumentParser) -> None:
        command.add_argument(
            "--import",
            dest="modules",
            action="append",
            default=[],
            metavar="MODULE",
            help="imported first: a file or a module that defines and registers operators",
        )

    report = add("report", "what a call needs, and where")
    add_training(report)
    add_import(report)
    report.add_argument("--budget", metavar="SIZE", help="also the largest batch within 6GiB, say")
    report.add_argument(
        "--device", default="cpu", metavar="D", help="cuda or a card, as h100-80gb-hbm3 (cpu)"
    )
    report.add_argument("-o", "--output", metavar="FILE.html", help="the page (MODEL.html)")
    report.add_argument(
        "--snapshot",
        metavar="FILE.pickle",
        help="what the allocator of the GPU would do, for PyTorch's viewer of memory",
    )

    compile = add("compile", "write a file whose batch runs in tiles")
    add_training(compile)
    add_import(compile)
    compile.add_argument("-o", "--output", required=True, metavar="OUT.pt")
    size = compile.add_mutually_exclusive_group()
    size.add_argument(
        "--budget", default="auto", metavar="SIZE", help="as 6GiB; auto: what is free"
    )
    size.add_argument("--tile", type=_positive, metavar="N", help="samples, a power of two")
    compile.add_argument("--random", default="refuse", help="see docs/user/Training.md")
    compile.add_argument("--batchnorm", default="exact", help="see docs/user/Training.md")
    compile.add_argument("--recompute", default="auto", help="see docs/user/Training.md")
    compile.add_argument(
        "--plans",
        type=int,
        default=1,
        metavar="N",
        help="how many plans the file has at most, for other budgets; see docs/user/Python.md",
    )
    compile.add_argument("--guard", default="warn", choices=["warn", "raise"])

    run = add("run", "run a file and measure it")
    run.add_argument("--method", default="forward", metavar="NAME", help="what is called")
    run.add_argument(
        "--mode",
        choices=["inference", "forward-with-grad", "train"],
        help="train: a step, the file's own train_step where it has one",
    )
    run.add_argument(
        "--loss", metavar="NAME", help="of a training step, as cross_entropy; one more --input"
    )
    bench = add("bench", "compare sizes of tiles, or measure this machine")
    bench.add_argument(
        "--calibrate",
        action="store_true",
        help="measure how long kernels take here, for plans of training steps",
    )

    profile = commands.add_parser(
        "profile",
        help="memory of a script, line by line",
        description=_EXAMPLES["profile"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    profile.add_argument("-o", "--output", metavar="FILE.html", help="also a page with the source")
    profile.add_argument(
        "--measure-only", action="store_true", help="leave out what koila predicts of modules"
    )
    profile.add_argument("model", metavar="SCRIPT.py", help="a script of Python")
    profile.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own")

    check = commands.add_parser(
        "check-op",
        help="compare what is said of an operator with runs",
        description=_EXAMPLES["check-op"],
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    check.add_argument("operator", metavar="OP", help="as aten::topk or mylib::op.overload")
    add_import(check)
    check.add_argument("--input", action="append", default=[], metavar="SPEC", help="repeated")
    check.add_argument(
        "--calls", type=_positive, default=20, metavar="N", help="random calls that are drawn (20)"
    )
    check.add_argument("--threads", type=_threads, metavar="N", help="threads of the runs")
    check.add_argument("--device", default="cpu", metavar="D", help="whose kernels run (cpu)")
    check.add_argument("--json", action="store_true", help="JSON on stdout, and nothing else")
    return parser


def _positive(text: str) -> int:
    if not text.isascii() or not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is no number of at least 1")
    return int(text)


def _threads(text: str) -> int:
    if _positive(text) > 4096:
        raise argparse.ArgumentTypeError(f"'{text}' is more than 4096")
    return int(text)


def _check_output(options: argparse.Namespace) -> None:
    """The output is a file of its own, with a name that says what it is."""
    from koila import _compiler
    from koila._errors import KoilaError

    output = options.output
    if output is None:
        return
    if output in ("", "-"):
        raise KoilaError("-o needs the name of a file")
    paths = (output, options.model)
    if all(map(os.path.exists, paths)) and os.path.samefile(*paths):
        raise KoilaError(f"-o '{output}' is the model itself; give another name")
    is_device = os.path.exists(output) and not os.path.isfile(output)
    if options.command == "compile":
        try:
            _compiler.check_output(output)
        except ValueError as error:
            raise KoilaError(str(error)) from None
    elif not is_device and not output.endswith((".html", ".htm")):
        raise KoilaError(f"the name of the page '{output}' must end in .html; JSON has --json")


def _check_snapshot(options: argparse.Namespace, page: str) -> None:
    from koila._errors import KoilaError

    snapshot = options.snapshot
    if snapshot is None:
        return
    if snapshot in ("", "-"):
        raise KoilaError("--snapshot needs the name of a file")
    for path, what in ((options.model, "the model"), (page, "the page")):
        if os.path.realpath(path) == os.path.realpath(snapshot):
            raise KoilaError(f"--snapshot '{snapshot}' is {what} itself; give another name")


def _say(kind: str, text: str) -> None:
    colour = {"error": "31", "warning": "33", "koila": "36"}[kind]
    word = f"{kind}:"
    if sys.stderr.isatty() and not os.environ.get("NO_COLOR"):
        word = f"\x1b[1;{colour}m{word}\x1b[0m"
    print(word, text, file=sys.stderr)


def _progress(text: str) -> None:
    """For a person who waits."""
    if sys.stderr.isatty():
        _say("koila", text)


def _sizes(options: argparse.Namespace) -> dict[str, int]:
    from koila._capture.inputs import find_symbol

    return {} if options.batch is None else {find_symbol(options.input): options.batch}


def _needed_batch(options: argparse.Namespace) -> dict[str, int]:
    from koila._errors import KoilaError

    if options.batch is None:
        raise KoilaError("give the size of the batch: --batch 64")
    return _sizes(options)


def _mode(options: argparse.Namespace) -> str:
    return options.mode or ("train" if options.loss else "inference")


def _import_modules(options: argparse.Namespace) -> None:
    """Files and modules of Python, which register operators. KoilaError where that fails."""
    import importlib
    import importlib.util

    from koila._errors import KoilaError

    for name in options.modules:
        sys.path.insert(0, os.path.dirname(os.path.abspath(name)) if name.endswith(".py") else "")
        try:
            if name.endswith(".py"):
                spec = importlib.util.spec_from_file_location(Path(name).stem, name)
                if spec is None or spec.loader is None:
                    raise KoilaError(f"--import {name}: no module of Python")
                module = importlib.util.module_from_spec(spec)
                sys.modules[module.__name__] = module
                spec.loader.exec_module(module)
            else:
                importlib.import_module(name)
        except KoilaError:
            raise
        except Exception as error:
            raise KoilaError(f"--import {name}: {type(error).__name__}: {error}") from error


def _check_op(options: argparse.Namespace) -> int:
    from koila._check import check_op

    _import_modules(options)
    _progress(f"running {options.operator}")
    found = check_op(
        options.operator,
        *options.input,
        calls=options.calls,
        threads=options.threads,
        device=options.device,
    )
    print(json.dumps(found.to_dict(), indent=2) if options.json else found, flush=True)
    return 0 if found.agrees else 1


def _load_libraries(options: argparse.Namespace) -> None:
    import torch

    from koila._compiler import load_extension
    from koila._errors import KoilaError

    for path in options.load_library:
        try:
            torch.ops.load_library(path)  # type: ignore[no-untyped-call]
        except (OSError, RuntimeError) as error:
            raise KoilaError(f"--load-library: {error}") from None
    for path in options.load_extension:
        load_extension(path)


def _report(options: argparse.Namespace) -> int:
    from koila._capture.inputs import find_symbol
    from koila._compiler import Remark, analyze_script
    from koila._outputs import apart, replacing
    from koila._report.report import Report
    from koila._temporary import write_text
    from koila.memory import budget_bytes, find_given_bytes

    _import_modules(options)
    _check_output(options)
    _load_libraries(options)
    page = options.output or f"{Path(options.model).stem}.html"
    _check_snapshot(options, page)
    limit: int | str | None = None
    if options.budget is not None and options.device != "cpu":
        # PyTorch is not asked: it may be of another device, or of none.
        given = find_given_bytes(options.budget)
        limit = "auto" if given is None else given
    elif options.budget is not None:
        limit = budget_bytes(options.budget)

    def analyze(batch: dict[str, int], **more: Any) -> dict[str, Any]:
        return analyze_script(
            options.model,
            options.input,
            batch=batch,
            mode=_mode(options),
            loss=options.loss,
            optimizer=options.optimizer,
            threads=options.threads,
            device=options.device,
            **more,
        )

    def work(snapshot: str | None) -> tuple[dict[str, Any], list[str]]:
        data = analyze(_sizes(options), allocator="auto", snapshot=snapshot)
        remarks: list[Remark] = []
        if limit is not None:
            # At one sample: the peak at the given batch may be above the budget.
            one = {find_symbol(options.input): 1}
            found = analyze(one, budget=limit, floor=False, batches=0, remarks=remarks)
            data["max_batch"] = found["max_batch"]
        return data, [remark.message for remark in remarks if remark.kind == "Note"]

    _progress(f"analysing {options.model}")
    with contextlib.ExitStack() as outputs:
        path = outputs.enter_context(replacing(page))
        recorded = options.snapshot and outputs.enter_context(replacing(options.snapshot))
        data, notes = apart(lambda: work(recorded))
        report = Report(data)
        write_text(path, report.to_html())
        for note in notes:
            _say("koila", note)
        print(report.to_json() if options.json else report, flush=True)
    if options.json:
        return 0
    if limit is not None:
        print(f"largest batch within {options.budget}: {report.data['max_batch']}")
    print(f"page: {page}")
    if options.snapshot:
        print(f"snapshot: {options.snapshot}{_describe_doubt(data)}")
    return 0


def _describe_doubt(data: dict[str, Any]) -> str:
    """What a snapshot is not sure of."""
    doubts = data["inexact"]
    if not doubts:
        return ""
    unknown = [doubt for doubt in doubts if not doubt["bound"]]
    what = "may be too low" if unknown else "is an upper bound"
    first = (unknown or doubts)[0]
    return f"; its peak {what}, as of '{first['op']}': {first['reason']}"


def _compile(options: argparse.Namespace) -> int:
    from koila._compiler import CompileOptions, compile_file
    from koila._outputs import apart, replacing
    from koila._report.report import Report
    from koila.memory import budget_bytes

    batch = _needed_batch(options)
    _import_modules(options)
    _check_output(options)
    _load_libraries(options)
    compile_options = CompileOptions(
        mode=_mode(options),
        loss=options.loss,
        budget=None if options.tile else budget_bytes(options.budget),
        tile=options.tile,
        optimizer=options.optimizer,
        random=options.random,
        batchnorm=options.batchnorm,
        recompute=options.recompute,
        plans=options.plans,
        guard=options.guard,
        threads=options.threads,
    )
    _progress(f"compiling {options.model}")
    with replacing(options.output) as path:
        report = Report(
            apart(
                lambda: compile_file(
                    options.model, path, options.input, batch=batch, options=compile_options
                )
            )
        )
        print(report.to_json() if options.json else report, flush=True)
    if not options.json:
        print(f"written: {options.output}")
    return 0


def _run(options: argparse.Namespace) -> int:
    from koila._errors import KoilaError

    _needed_batch(options)
    if options.method in ("train_step", "grads"):
        raise KoilaError("a step is run by --mode train, with --loss NAME if it has a target")
    files = [options.model] + ([options.other] if options.other else [])
    more = [f"--mode={_mode(options)}"] + ([f"--loss={options.loss}"] if options.loss else [])
    return _koila_run(options, files, [f"--method={options.method}", *more]).returncode


def _koila_run(
    options: argparse.Namespace, files: list[str], more: Sequence[str] = (), capture: bool = False
) -> subprocess.CompletedProcess[str]:
    import torch

    from koila._capture.inputs import find_symbol
    from koila._errors import KoilaError

    program = Path(__file__).with_name("bin") / "koila-run"
    if not program.is_file():
        raise KoilaError(f"'{program}' is not there; install koila again")
    # Where PyTorch is now need not be where it was when koila was built.
    libraries = [str(Path(torch.__file__).parent / "lib"), os.environ.get("LD_LIBRARY_PATH", "")]
    environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, libraries))}
    symbol = find_symbol(options.input)
    # A name may begin as options do.
    paths = [os.path.join(".", path) if path.startswith("-") else path for path in files]
    command = [str(program), *paths, *more, f"--batch={symbol}={options.batch}"]
    command += [f"--input={spec}" for spec in options.input]
    command += [f"--threads={options.threads}"] if options.threads else []
    command += [f"--load-library={path}" for path in options.load_library]
    command += [f"--load-dialect-plugin={path}" for path in options.load_extension]
    command += ["--json"] if options.json or capture else []
    return subprocess.run(
        command,
        env=environment,
        text=True,
        stdout=subprocess.PIPE if capture else None,
        check=False,
    )


def _profile(options: argparse.Namespace) -> int:
    from koila._outputs import replacing
    from koila._profile import make_page, run_script
    from koila._temporary import write_text

    _check_output(options)
    profiler, status = run_script(
        options.model, options.arguments, predict=not options.measure_only
    )
    sys.stdout.flush()
    print(profiler.display(), flush=True)
    if options.output is not None:
        with replacing(options.output) as path:
            write_text(path, make_page(profiler, f"Memory of {options.model}"))
    return status


def _calibrate(options: argparse.Namespace) -> int:
    from koila._costs import calibrate, describe_machine
    from koila._errors import KoilaError

    given = [
        name
        for name in ("model", "input", "batch", "load_library", "load_extension")
        if getattr(options, name)
    ]
    if given:
        name = given[0].replace("_", "-")
        what = "a model" if name == "model" else f"--{name}"
        raise KoilaError(f"--calibrate measures the machine: leave out {what}")
    import torch

    threads = options.threads or torch.get_num_threads()
    path, found = calibrate(threads, _progress)
    if options.json:
        machine = describe_machine(threads)
        print(json.dumps({"schema": 1, "machine": machine, "path": path, "picoseconds": found}))
        return 0
    print(describe_machine(threads))
    for family, picoseconds in found.items():
        what = {
            "byte": "a byte moved",
            "call": "an operator",
            "pooling": "an element of a window (pooling)",
        }.get(family, f"a multiplication ({family.replace('_', ' ')})")
        print(f"{picoseconds:>14,.4g} ps  {what}")
    print(f"table: {path}")
    return 0


def _bench(options: argparse.Namespace) -> int:
    if options.calibrate:
        return _calibrate(options)
    from koila._compiler import CompileOptions, compile_file
    from koila._errors import KoilaError
    from koila._outputs import apart
    from koila._temporary import temporary_folder
    from koila.memory import format_bytes

    if options.model is None:
        raise KoilaError("give a model to compare sizes of tiles of, or --calibrate")
    batch = _needed_batch(options)
    _load_libraries(options)
    rows: list[dict[str, Any]] = []
    with temporary_folder() as folder:
        files = [(None, options.model)]
        tile = 1 << (options.batch.bit_length() - 1)
        # Six sizes say how memory turns into time.
        for _ in range(6):
            path = os.path.join(folder, f"tile-{tile}.pt")
            _progress(f"compiling for tiles of {tile}")
            compiling = CompileOptions(tile=tile, threads=options.threads)
            apart(
                partial(
                    compile_file, options.model, path, options.input, batch=batch, options=compiling
                )
            )
            files.append((tile, path))
            tile //= 2
            if not tile:
                break
        for size, path in files:
            _progress("running " + ("as it is" if size is None else f"in tiles of {size}"))
            done = _koila_run(options, [path], capture=True)
            if done.returncode:
                return 1
            rows.append({"tile": size, **json.loads(done.stdout)["programs"][0]})
            del rows[-1]["path"]
    if options.json:
        print(json.dumps({"schema": 1, "batch": options.batch, "rows": rows}, indent=2))
        return 0
    print(f"{'tile':>8}  {'predicted':>12}  {'measured':>12}  {'ms':>10}")
    for row in rows:
        predicted = row["predicted_peak_bytes"]
        print(
            f"{'whole' if row['tile'] is None else row['tile']:>8}  "
            f"{'?' if predicted is None else format_bytes(predicted):>12}  "
            f"{format_bytes(row['measured_peak_bytes']):>12}  {row['time_ms']:>10.2f}"
        )
    return 0
