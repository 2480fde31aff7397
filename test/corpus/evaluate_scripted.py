"""What koila makes of a scripted program. As evaluate.py; beside results, it
compares what a call leaves behind: state, arguments, output, exceptions.
Used by corpus.py --scripted."""

import collections
import contextlib
import io
import json
import re
import warnings

import torch

import inputs
from evaluate import (
    BATCHES,
    REGIONS,
    Extents,
    Wrong,
    base_name,
    check_extents,
    check_roundtrip,
    compare_contents,
    infer,
    is_container,
    new_report,
    opaque_operators,
    read_again,
    recording,
    same_results,
    tensors_of,
    unknown_results,
    without_machine,
)
from registry import SCRIPTED
from truth import CONTAINERS, Truth

ROUND_TRIP_BATCHES = (2, 5)


def make_inputs(options, specs, batch):
    made = inputs.make(specs, batch)
    return made[:1] * len(made) if options.same_argument else made


# ---------------------------------------------------------------------------
# Calls


def last_line(error):
    """The message without the places, which differ."""
    lines = [line for line in str(error).splitlines() if line.strip()]
    return without_machine(lines[-1]) if lines else ""


def sharing(*values):
    """A number per tensor, the same one for those that share memory."""
    numbers = {}
    return [
        numbers.setdefault(tensor.untyped_storage().data_ptr(), len(numbers))
        if tensor.numel()
        else None
        for value in values
        for tensor in tensors_of(value)
    ]


def call(module, method, arguments, grad):
    """All that a call shows."""
    torch.manual_seed(0)
    results, error = None, None
    printed = io.StringIO()
    with (
        contextlib.redirect_stdout(printed),
        warnings.catch_warnings(record=True) as warned,
        torch.set_grad_enabled(grad),
    ):
        warnings.simplefilter("always")
        try:
            results = getattr(module, method)(*arguments)
        except Exception as raised:
            error = [type(raised).__name__, last_line(raised)]
    return {
        "results": results,
        "error": error,
        "arguments": arguments,
        "printed": printed.getvalue(),
        "warnings": [(w.category.__name__, str(w.message)) for w in warned],
        "gradients": [t.requires_grad for t in tensors_of(results)],
        "memory": sharing(results, arguments, list(module.parameters()), list(module.buffers())),
        "random": torch.get_rng_state(),
    }


def detached(value):
    """A copy as of now: a later call may write to it."""
    if isinstance(value, torch.Tensor):
        return value.detach().clone()
    if isinstance(value, dict):
        return {key: detached(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return (
            type(value)(map(detached, value))
            if not hasattr(value, "_fields")
            else tuple(map(detached, value))
        )
    return value


def session(path, options, methods):
    """Calls of one module, one after the other, and its state in between."""
    module = torch.jit.load(path)
    calls = []

    def add(method, specs, batch, grad=False):
        arguments = make_inputs(options, specs, batch)
        made = detached(call(module, method, arguments, grad))
        saved = io.BytesIO()
        torch.jit.save(module, saved)
        made["state"] = check_roundtrip.archive_lines(saved)
        calls.append(made)

    for batch in ROUND_TRIP_BATCHES:
        for grad in (False, True):
            for method, specs in methods.items():
                add(method, specs, batch, grad)
    for spec in options.raises:
        specs = [spec, *methods["forward"][1:]]
        add("forward", specs, 2)
        if not calls[-1]["error"]:
            raise Wrong(f"vacuous: forward raises nothing for {spec}")
    # After an exception, too.
    add("forward", methods["forward"], 2)
    return calls


def differ(results, batch):
    """Whether samples have results of their own."""

    def distinct(tensor, dim):
        parts = tensor.unbind(dim)
        return not any(torch.equal(parts[0], part) for part in parts[1:])

    return any(
        distinct(tensor, dim)
        for tensor in tensors_of(results)
        for dim in range(tensor.dim())
        if tensor.size(dim) == batch
    )


def check_session(calls, options, methods):
    """The program itself is what the corpus wants."""
    good = calls[: -1 - len(options.raises)] + calls[-1:]
    for made in good:
        if made["error"]:
            raise Wrong(f"PyTorch raises {made['error'][1]}")
    if not any(differ(made["results"], batch) for made in calls for batch in ROUND_TRIP_BATCHES):
        raise Wrong("vacuous: no result differs between samples")


# ---------------------------------------------------------------------------
# The round trip


def round_trip(tool, file, program, method, text, options, methods, expected):
    """Writes a program, and compares that with what was read."""
    written = text.with_suffix(".pt")
    tool.write(program, written, method)
    read_again(tool, written, text, text.with_suffix(".again.mlir"), method)
    if difference := compare_contents(file, written):
        raise Wrong(difference)
    if difference := same_results(expected, session(written, options, methods), "call"):
        raise Wrong(difference)
    written.unlink()


# ---------------------------------------------------------------------------


PLACE = re.compile(r'([^/"]+)"(?:, line |:)(\d+)')


def spelled(schema, place):
    """What a node and its fact have in common."""
    found = PLACE.search(place)
    overload = schema.partition(".")[2]
    return (f"{base_name(schema)}.{overload}", *(found.groups() if found else ()))


def is_builtin_number(text, tensor):
    """A number of a function that LibTorch adds: the same line at all calls,
    so that one is taken for another."""
    return "<string>" in text and not tensor


def match(mine, theirs):
    """Pairs of places with the same operator, in order: as many as there can
    be, and rather those with the same line."""

    def encode(entries):
        return torch.tensor(
            [
                [
                    numbers.setdefault(entry[:1], len(numbers)),
                    numbers.setdefault(entry, len(numbers)),
                ]
                for entry in entries
            ],
            dtype=torch.int64,
        )

    if not mine or not theirs:
        return []
    numbers = {}
    rows, columns = encode(mine), encode(theirs)
    best = torch.zeros(len(mine) + 1, len(theirs) + 1, dtype=torch.int32)
    for i, row in enumerate(rows):
        equal = (columns == row).to(torch.int32)
        gain = best[i, :-1] + equal[:, 0] + 2 * equal[:, 1]
        gain = torch.where(equal[:, 0] > 0, gain, 0)
        best[i + 1, 1:] = torch.maximum(best[i, 1:], gain).cummax(0).values
    pairs, i, j, best = [], len(mine), len(theirs), best.tolist()
    while i and j:
        if best[i][j] == best[i - 1][j]:
            i -= 1
        elif best[i][j] == best[i][j - 1]:
            j -= 1
        else:
            i, j = i - 1, j - 1
            pairs.append((i, j))
    return pairs[::-1]


class ScriptedExtents(Extents):
    """Import decides branches on attributes, so that its nodes have other
    numbers than PyTorch's. They are matched by operator and line, in order."""

    counters = True

    def align(self, facts):
        names, nodes = self.truth.names, self.truth.nodes
        ran = sorted(
            {index for index, _, _ in self.trace if names[index].split(".")[0] not in CONTAINERS}
        )
        values = {index: value for index, _, value in self.trace}
        theirs = collections.defaultdict(list)
        for fact in facts:
            schema = REGIONS.get(fact["op"], fact.get("schema"))
            index = fact["node"]
            if schema and index is not None and index >= 0 and not is_container(fact):
                theirs[index].append(fact | {"text": spelled(schema, fact["location"])})
        theirs = [
            part
            for _, part in sorted(theirs.items())
            if not is_builtin_number(part[0]["text"], "dims" in part[0]["results"][0])
        ]
        texts = {index: spelled(names[index], nodes[index].sourceRange()) for index in ran}
        ran = [
            index
            for index in ran
            if not is_builtin_number(texts[index], isinstance(values[index], (torch.Tensor, list)))
        ]
        mine = [texts[index] for index in ran]
        pairs = match(mine, [part[0]["text"] for part in theirs])
        found = {ran[a]: theirs[b] for a, b in pairs}
        matched = {b for _, b in pairs}
        # Branches that never ran leave facts over, what import folds leaves
        # nodes over. Both at once is a mistake of this comparison.
        nodes_left = [
            names[index]
            for index in ran
            if index not in found and isinstance(values[index], torch.Tensor)
        ]
        facts_left = [
            base_name(part[0]["schema"])
            for i, part in enumerate(theirs)
            if i not in matched and "schema" in part[0] and "dims" in part[0]["results"][0]
        ]
        if common := {base_name(n) for n in nodes_left} & set(facts_left):
            raise Wrong(f"{min(common)} is not found in koila's program: the graphs do not match")
        return found


class OpenExtents(ScriptedExtents):
    open = True


def infer_method(report, tool, file, program, method, specs, options):
    """Adds what inference finds in one method to the report."""
    truth = Truth(torch.jit.load(file), method)
    report["nodes"] += len(truth.all_names)
    report["operators"] = sorted(
        {*report["operators"], *truth.all_names} - {"prim::Constant", "prim::GetAttr"}
    )
    if not report["imported"]:
        return
    facts, _ = infer(tool, program, specs, method)
    # Their results are no values.
    facts = [fact for fact in facts if fact.get("schema") not in ("prim::Enter", "prim::Exit")]
    # Only what gives tensors: numbers and containers are carried through.
    report["opaque"].update(
        opaque_operators(
            fact for fact in facts if any("dims" in result for result in fact["results"])
        )
    )
    tensors, unknown = unknown_results(facts)
    report["tensors"] = report.get("tensors", 0) + tensors
    # What data decide need not have an extent, or even a rank.
    report["left_open" if options.decided else "unknown"].update(unknown)
    with contextlib.redirect_stdout(io.StringIO()):
        check_extents(
            report,
            facts,
            truth,
            lambda batch: make_inputs(options, specs, batch),
            BATCHES,
            OpenExtents if options.decided else ScriptedExtents,
        )


def evaluate(name, tool, folder):
    """What there is to report of a scripted program."""
    torch.set_num_threads(1)
    torch._C._jit_set_profiling_executor(False)
    options = SCRIPTED[name]
    report = new_report(name) | {"left_open": collections.Counter()}
    file = folder / f"{name}.pt"
    error = folder / f"{name}.error"
    if error.exists():
        report["wrong"].append(
            "not scripted: " + without_machine(error.read_text().splitlines()[0])
        )
        return report
    specs = json.loads((folder / f"{name}.inputs").read_text())
    methods = {"forward": specs, **options.methods}
    expected = session(file, options, methods)
    check_session(expected, options, methods)
    text = folder / "written" / f"{name}.mlir"
    text.parent.mkdir(exist_ok=True)
    report["imported"] = report["round_trip"] = True
    for method, specs in methods.items():
        place = "" if method == "forward" else f"{method}: "
        program = None
        with recording(report, f"{place}import"):
            program = tool.read(file, text, method)
        report["imported"] &= program is not None
        with recording(report, f"{place}inference"):
            infer_method(report, tool, file, program, method, specs, options)
        written = False
        if program:
            with recording(report, f"{place}round trip"):
                round_trip(tool, file, program, method, text, options, methods, expected)
                written = True
        report["round_trip"] &= written
        text.unlink(missing_ok=True)
    tool.clean_up(text)
    return report
