"""Emitted files on a GPU: equal results, and what they take there.

Usage: gpu_checks.py prepare FOLDER [--build FOLDER] [--batch 64] [--device CARD]
           [--models NAME...]
       gpu_checks.py run FOLDER --json FILE [--executors plain default]
           [--capped NAME...]
       gpu_checks.py page FILE... --write PAGE [--draws FILE]

*prepare* runs where koila is built, and needs no GPU: each model is traced and
compiled for half of the bytes that one call allocates, for inference and for a
training step. Weights repeat 1,009 random numbers, so that the folder packs
well. *run* needs PyTorch and a GPU, and nothing of koila. For each file it calls
the whole batch and the tiles on the same inputs, TF32 off, with TorchScript's
executor that does not profile (plain) or the default one, and notes

    off       the relative L2 distance of results, of gradients in a step, from
              those of the whole batch in float64
    peaks     max_memory_allocated above what is there between calls, in bytes,
              as requested and in blocks of the allocator
    limit     whether the tiles, and of --capped also the whole batch, run under a
              limit of the process at what the tiles reserve
    time      medians of five calls, interleaved, synchronised

Files are compiled by the figures of the CPU's kernels, since koila does not tile by
those of CUDA yet. Of the whole batch *prepare* also asks what the models of CUDA say
of a process on CARD (docs/reference/DeviceProfiles.md; default: h200), and *run*
notes what it takes.
"""

import argparse
import gc
import json
import pathlib
import statistics
import subprocess
import sys
import time

import torch

import gpu_draws

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODELS = {
    "alexnet": 128, "vgg11_bn": 64, "resnet18": 128, "resnet50": 128, "resnext50_32x4d": 128,
    "densenet121": 128, "googlenet": 128, "inception_v3": 128, "squeezenet1_0": 128,
    "mobilenet_v2": 128, "mobilenet_v3_large": 128, "shufflenet_v2_x1_0": 128,
    "mnasnet1_0": 128, "regnet_y_400mf": 128, "efficientnet_b0": 128, "convnext_tiny": 128,
    "vit_b_16": 64, "swin_t": 128, "ghostnet_100": 128, "xcit_nano_12_p16_224": 224,
}  # fmt: skip
PERIOD = 1009
TIMES = 5


# --- Where koila is built ---------------------------------------------------------------------


def make_model(name, size):
    sys.path[:0] = [str(ROOT / "tools" / "bench"), str(ROOT / "test" / "models")]
    import lazy_models

    if name in lazy_models.MODELS:
        model = lazy_models.make_model(name, torch.float32)
    else:
        import timm

        model = timm.create_model(name, pretrained=False, num_classes=10)
    numbers = torch.randn(PERIOD)
    with torch.no_grad():
        for weight in model.parameters():
            if weight.dim() > 1:
                repeated = numbers.repeat(weight.numel() // PERIOD + 1)[: weight.numel()]
                weight.copy_((repeated * weight.std()).view_as(weight))
    lazy_models.set_statistics(model, make_images(8, size))
    return model.eval()


def make_images(batch, size, device="cpu"):
    generator = torch.Generator().manual_seed(2)
    images = torch.randn(batch, 3, size, size, generator=generator)
    # Samples that differ in more than noise.
    return (images * torch.linspace(0.5, 2, batch).view(-1, 1, 1, 1)).to(device)


def compile_file(options, source, output, size, training):
    build, batch = options.build, options.batch
    image = f"--input=float32[B,3,{size},{size}]"
    mode = "mode=train loss=cross_entropy " if training else ""
    given = [image, *(["--input=int64[B]{0:10}"] if training else []), "--batch", f"B={batch}"]
    report = output.with_suffix(".json")

    def call(*arguments):
        command = [str(build / "bin" / "koila-opt"), str(source), *given, *arguments]
        subprocess.run(command, check=True)

    peak = f"--koila-peak-memory={mode}threads=1 format=json batches=0 output={report}"
    call("--koila-infer-shapes", peak, "-o", "/dev/null")
    whole = json.loads(report.read_text())
    # Half of the call, or what no tile can go below where that is more.
    budget = max(whole["peak_bytes"] // 2, whole["floor_bytes"] * 5 // 4)
    call(f"--koila-compile={mode}budget={budget} threads=1", "-o", str(output))
    process = f"{mode}device={options.device} allocator=cuda format=json output={report}"
    call("--koila-infer-shapes", f"--koila-peak-memory={process}", "-o", "/dev/null")
    on_card = json.loads(report.read_text())
    report.unlink()
    return {
        "untiled": whole["peak_bytes"],
        "budget": budget,
        "exact": whole["exact"],
        "card": options.device,
        "process": {part: on_card["cuda"][f"{part}_peak"] for part in ("allocated", "reserved")},
        "process_exact": on_card["exact"],
    }


def read_promise(file):
    import zipfile

    with zipfile.ZipFile(file) as archive:
        name = next(entry for entry in archive.namelist() if entry.endswith("koila/report.json"))
        stored = json.loads(archive.read(name))
    return {"tiled": stored["peak_bytes"], "tile": stored["promise"]["tile"]}


def prepare(options):
    options.folder.mkdir(parents=True, exist_ok=True)
    # What is traced holds it as a constant.
    torch.backends.cudnn.allow_tf32 = False
    facts = []
    for name in options.models or MODELS:
        size = MODELS[name]
        torch.manual_seed(0)
        source = options.folder / "source.pt"
        model = make_model(name, size)
        torch.jit.trace(model, make_images(2, size), check_trace=False).save(str(source))
        for mode in ("inference", "step"):
            output = options.folder / f"{name}-{mode}.pt"
            try:
                row = compile_file(options, source, output, size, mode == "step")
            except subprocess.CalledProcessError:
                print(f"{name}, {mode}: refused, see above", file=sys.stderr)
                continue
            row |= read_promise(output)
            row |= {"model": name, "mode": mode, "size": size, "batch": options.batch}
            facts.append(row)
            print(f"{name}, {mode}: tile {row['tile']}", file=sys.stderr, flush=True)
        source.unlink()
        (options.folder / "facts.json").write_text(json.dumps(facts, indent=1) + "\n")


# --- Where the GPU is -------------------------------------------------------------------------


def measure(function):
    """Peaks of one call above what is there before it, and those of the process."""
    gc.collect()
    torch.cuda.synchronize()
    torch.cuda.empty_cache()
    torch.cuda.reset_peak_memory_stats()
    before = torch.cuda.memory_stats()
    result = function()
    torch.cuda.synchronize()
    after = torch.cuda.memory_stats()
    del result
    above = {
        part: after[f"{part}_bytes.all.peak"] - before[f"{part}_bytes.all.current"]
        for part in ("requested", "allocated")
    }
    return {
        **above,
        "process": after["allocated_bytes.all.peak"],
        "reserved": after["reserved_bytes.all.peak"],
    }


def runs_under(function, limit):
    gc.collect()
    torch.cuda.empty_cache()
    total = torch.cuda.get_device_properties(0).total_memory
    torch.cuda.set_per_process_memory_fraction(min(limit / total, 1.0))
    try:
        function()
        torch.cuda.synchronize()
        return True
    except RuntimeError as error:
        # The interpreter of TorchScript raises it as a plain RuntimeError.
        if "out of memory" not in str(error):
            raise
        return False
    finally:
        torch.cuda.set_per_process_memory_fraction(1.0)


def distance(found, wanted):
    norm = sum(part.double().square().sum() for part in wanted).sqrt()
    off = sum((a.double() - b.double()).square().sum() for a, b in zip(found, wanted, strict=True))
    return (off.sqrt() / norm).item()


def spread(results):
    """How much the rows of a result differ, relative to their size."""
    return (results.std(0).norm() / results.norm(dim=1).mean()).item()


def make_calls(module, row, dtype):
    images = make_images(row["batch"], row["size"], "cuda").to(dtype)
    labels = torch.arange(row["batch"], device="cuda") % 10
    if row["mode"] == "inference":

        def run_without_gradients(method):
            def call():
                with torch.no_grad():
                    return [method(images)]

            return call

        return run_without_gradients(module.forward_untiled), run_without_gradients(module.forward)

    def run_whole():
        module.zero_grad(set_to_none=False)
        loss = torch.nn.functional.cross_entropy(module(images), labels)
        loss.backward()
        return [loss.detach()]

    def run_in_tiles():
        module.zero_grad(set_to_none=False)
        return [module.train_step(images, labels)]

    return run_whole, run_in_tiles


def take_results(call, module, mode):
    found = [part.clone() for part in call()]
    return found if mode == "inference" else [w.grad.clone() for w in module.parameters()]


def load(folder, row, dtype):
    module = torch.jit.load(str(folder / f"{row['model']}-{row['mode']}.pt"), map_location="cuda")
    module = module.to(dtype)
    for weight in module.parameters():
        weight.grad = torch.zeros_like(weight) if row["mode"] == "step" else None
    return module


def take_exact_results(folder, row):
    """Those of the whole batch in float64."""
    module = load(folder, row, torch.float64)
    whole, _ = make_calls(module, row, torch.float64)
    return take_results(whole, module, row["mode"])


def check_file(folder, row, *, is_capping):
    module = load(folder, row, torch.float32)
    whole, tiles = make_calls(module, row, torch.float32)
    for call in (whole, tiles, whole, tiles):
        call()
    exact = take_exact_results(folder, row)
    wanted, found = (take_results(call, module, row["mode"]) for call in (whole, tiles))
    result = {"whole_off": distance(wanted, exact), "tiles_off": distance(found, exact)}
    if row["mode"] == "inference":
        result["spread"] = spread(wanted[0])
    del wanted, found, exact
    result["whole"], result["tiles"] = measure(whole), measure(tiles)
    limit = result["tiles"]["reserved"]
    result["tiles_under_limit"] = runs_under(tiles, limit)
    # Where memory is short, cuDNN tries all its plans, which takes seconds.
    result["whole_under_limit"] = runs_under(whole, limit) if is_capping else None
    times = {"whole": [], "tiles": []}
    for _ in range(TIMES):
        for name, call in (("whole", whole), ("tiles", tiles)):
            torch.cuda.synchronize()
            start = time.perf_counter()
            call()
            torch.cuda.synchronize()
            times[name].append(time.perf_counter() - start)
    result["seconds"] = {name: statistics.median(values) for name, values in times.items()}
    return result


def set_executor(is_profiling):
    torch._C._jit_set_profiling_executor(is_profiling)
    torch._C._jit_set_profiling_mode(is_profiling)


def run(options):
    torch.backends.cuda.matmul.allow_tf32 = torch.backends.cudnn.allow_tf32 = False
    facts = json.loads((options.folder / "facts.json").read_text())
    properties = torch.cuda.get_device_properties(0)
    result = {
        "device": properties.name, "torch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(), "rows": [],
    }  # fmt: skip
    for row in facts:
        for executor in options.executors:
            set_executor(executor == "default")
            try:
                found = check_file(options.folder, row, is_capping=row["model"] in options.capped)
            except RuntimeError as error:
                found = {"error": str(error)[-600:]}
            result["rows"].append({**row, "executor": executor, **found})
            print(row["model"], row["mode"], executor, found.get("error", found.get("tiles_off")),
                  file=sys.stderr, flush=True)  # fmt: skip
            gc.collect()
            torch.cuda.empty_cache()
        options.json.write_text(json.dumps(result, indent=1) + "\n")


# --- The page ---------------------------------------------------------------------------------


def mib(count):
    return f"{count / 2**20:.1f}"


def line(row):
    name = f"| `{row['model']}` | {row['mode']} "
    if "error" in row:
        lines = row["error"].splitlines()
        said = next(text for text in [*reversed(lines), ""] if "rror" in text or not lines)
        return name + f"| | does not run: {said.strip()[:120]} " + "| " * 10 + "|"
    whole, tiles, seconds = row["whole"], row["tiles"], row["seconds"]
    capped = {None: "", True: ", whole: runs", False: ", whole: out of memory"}
    cells = [
        f"{row['whole_off']:.0e}", f"{row['tiles_off']:.0e}",
        mib(row["untiled"]), mib(whole["requested"]),
        f"{mib(row['process']['allocated'])} / {mib(whole['process'])}",
        f"{mib(row['process']['reserved'])} / {mib(whole['reserved'])}",
        mib(row["tiled"]), mib(tiles["requested"]),
        "yes" if tiles["requested"] <= row["budget"] else "**no**",
        f"tiles: {'run' if row['tiles_under_limit'] else '**refused**'}"
        + capped[row["whole_under_limit"]],
        f"{1e3 * seconds['whole']:.1f} / {1e3 * seconds['tiles']:.1f}",
    ]  # fmt: skip
    return name + f"| {row['tile']} | " + " | ".join(cells) + " |"


HEAD = """\
| model | call | tile | off: whole | off: tiles | whole: CPU's figure | measured | \
whole: allocated, CUDA's / measured | whole: reserved, CUDA's / measured | \
tiles: CPU's figure | measured | within | limit | ms: whole / tiles |
|---|---|---:|---:|---:|---:|---:|---:|---:|---:|---:|---|---|---:|"""


ABOUT = """\
# Emitted files on a GPU

<!-- Written by tools/bench/gpu_checks.py page; do not edit. -->

Each model is traced on the CPU and compiled for half of the bytes that one call takes
there, or for what no tile can go below. The files run on the GPU with plain PyTorch;
TF32 is off. What koila promises of tiles are the CPU's figures; *CUDA's* are those of
its models of the card, of a process with weights, inputs, gradients and the workspaces
of cuBLAS, without those of cuDNN.

* *off*: the relative L2 distance from the whole batch in float64, of results, in a
  step of all gradients together
* bytes are MiB above what is there between calls, as requested of the caching
  allocator, but for *allocated* and *reserved*, which are those of the process: what is
  reserved was measured after the cache had been emptied; *within* says whether the
  tiles keep the CPU's budget on the GPU as well
* *limit*: a limit of the process at what the tiles reserve
* *ms*: medians of five calls, interleaved: small tiles leave a large GPU idle
"""


def describe(rows):
    """What the table comes to."""
    run = [row for row in rows if "error" not in row]
    steps = [row for row in run if row["mode"] == "step"]
    near = [row for row in steps if abs(row["whole"]["requested"] / row["untiled"] - 1) <= 0.02]
    kept = [row for row in run if row["tiles"]["requested"] <= row["budget"]]
    capped = [row for row in run if row["whole_under_limit"] is not None]
    numbers = [row for row in run if row["whole_off"] == row["whole_off"]]
    off = [row for row in numbers if row["tiles_off"] > 2 * row["whole_off"] + 1e-6]

    def name(chosen):
        return ", ".join(f"`{row['model']}` ({row['mode']})" for row in chosen)

    nothing = [row for row in run if row not in numbers]
    return [
        f"* {len(run)} of {len(rows)} calls run.",
        f"* In {len(numbers) - len(off)} the tiles are no further from float64 than twice the "
        f"whole batch" + (f"; further in {name(off)}" if off else "") + "."
        + (f" In {name(nothing)} the whole batch is not a number either, float64 included, and "
           "on the CPU it is: the cause is not known." if nothing else ""),
        f"* {len(kept)} keep the CPU's budget. The CPU's figure is within 2 % of the whole batch's "
        f"peak in {len(near)} of {len(steps)} steps; the rest are workspaces of cuDNN.",
        f"* Under the limit {sum(row['tiles_under_limit'] for row in run)} of {len(run)} run in "
        f"tiles, and the whole batch in {sum(row['whole_under_limit'] for row in capped)} of the "
        f"{len(capped)} that were tried.",
    ]  # fmt: skip


def write_page(options):
    lines = [ABOUT]
    for file in options.files:
        found = json.loads(file.read_text())
        lines.append(
            f"{found['device']}, PyTorch {found['torch']}, cuDNN {found['cudnn']}, batch "
            f"{found['rows'][0]['batch']}."
        )
        for executor in ("plain", "default"):
            rows = [row for row in found["rows"] if row["executor"] == executor]
            if rows:
                lines += ["", f"## TorchScript's executor: {executor}", "", *describe(rows)]
                lines += ["", HEAD, *map(line, rows)]
    if options.draws:
        lines += gpu_draws.describe(options.draws)
    options.write.write_text("\n".join(lines) + "\n")


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = parser.add_subparsers(required=True)
    part = parts.add_parser("prepare")
    part.add_argument("folder", type=pathlib.Path)
    part.add_argument("--build", type=pathlib.Path, default=ROOT / "build")
    part.add_argument("--batch", type=int, default=64)
    part.add_argument("--device", default="h200", metavar="CARD")
    part.add_argument("--models", nargs="*", choices=MODELS, metavar="NAME")
    part.set_defaults(call=prepare)
    part = parts.add_parser("run")
    part.add_argument("folder", type=pathlib.Path)
    part.add_argument("--json", type=pathlib.Path, required=True)
    part.add_argument("--executors", nargs="*", default=["plain"], choices=["plain", "default"])
    part.add_argument("--capped", nargs="*", default=[], metavar="NAME")
    part.set_defaults(call=run)
    part = parts.add_parser("page")
    part.add_argument("files", type=pathlib.Path, nargs="+")
    part.add_argument("--write", type=pathlib.Path, required=True)
    part.add_argument("--draws", type=pathlib.Path, help="what gpu_draws.py has noted")
    part.set_defaults(call=write_page)
    options = parser.parse_args()
    options.call(options)


if __name__ == "__main__":
    main()
