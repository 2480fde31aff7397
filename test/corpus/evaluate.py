"""What koila makes of one program: reads it, infers, writes it again, and is
compared with PyTorch on every value. Used by corpus.py."""

import collections
import contextlib
import io
import json
import pathlib
import re
import subprocess
import sys

import torch

import inputs
import make_programs
from registry import SCRIPTED
from truth import CONTAINERS, Truth

TESTS = pathlib.Path(__file__).parent.parent
sys.path.insert(0, str(TESTS / "Target" / "TorchScript"))
# Last: it has modules of the same names.
sys.path.append(str(TESTS / "property"))
import check_roundtrip
import same_ir
from koila._check.facts import FUNCTIONS, MLIR_TYPES
from koila_opt import Broken, Koila, Refused

BATCHES = (2, 5, 7)
ROUND_TRIP_BATCHES = (2, 5)
TIMEOUT = 120

SIGNED = re.compile(r"^si(?=\d)")

# Where symbols other than the batch may come from: data decide.
DECIDED_BY_DATA = {
    "aten::nonzero",
    "aten::nonzero_numpy",
    "aten::masked_select",
    "aten::index",
    "aten::_unique2",
    "aten::unique_dim",
    "aten::unique_consecutive",
    "aten::repeat_interleave",
    "aten::bincount",
    "aten::item",
    "aten::Int",
    "aten::IntImplicit",
    "aten::ScalarImplicit",
    "aten::where",
}
SYMBOL = re.compile(r"[A-Za-z_][\w.]*")


class Refusal(Exception):
    """The first diagnostic in what koila prints."""

    def __init__(self, printed):
        super().__init__(first_line(printed))
        self.printed = printed


class Wrong(Exception):
    """A sentence about a result that is wrong."""


@contextlib.contextmanager
def recording(report, place):
    """Puts what a step raises into the report."""
    try:
        yield
    except Refusal as refusal:
        report["refused"].append(f"{place}: {refusal}")
    except Wrong as wrong:
        report["wrong"].append(f"{place}: {wrong}")


def without_machine(text):
    """Places without the folders of this machine."""
    text = re.sub(r"/[^\s\"':()]*/([\w.-]+\.(?:pt|mlir))", r"\1", text)
    text = re.sub(r"(?<![\w.])/[^\s\"':()]*?/(?:site-packages|test/corpus)/", "", text)
    return re.sub(r"/[^\s\"':()]*/([\w.-]+\.py)", r"\1", text)


def first_line(text, kinds=("error",)):
    """The first message of koila-opt, without the place of the archive."""
    for kind in kinds:
        for line in text.splitlines():
            if match := re.search(rf"\b{kind}: (.*)", line):
                place = re.search(r"([\w./-]+\.py\W{0,3}:?\d+)", line)
                message = match.group(1)
                if place and place.group(1) not in message:
                    message += f" ({place.group(1)})"
                return without_machine(message)
    lines = [line for line in text.splitlines() if line and line[0] != "{"]
    return without_machine(lines[0]) if lines else "no message"


def koila_opt(program, *arguments):
    """What koila-opt prints; raises Refusal, and Wrong if it ends in another way
    than with a diagnostic."""
    try:
        done = subprocess.run(
            [program, *map(str, arguments)], text=True, capture_output=True, timeout=TIMEOUT
        )
    except subprocess.TimeoutExpired:
        raise Wrong(f"koila-opt took more than {TIMEOUT} seconds") from None
    if done.returncode < 0:
        raise Wrong(f"koila-opt died of signal {-done.returncode}")
    if done.returncode and not re.search(r"\berror: .", done.stderr):
        raise Wrong(f"koila-opt ends with {done.returncode} and no diagnostic")
    if done.returncode:
        raise Refusal(done.stderr)
    return done.stderr


class Tool:
    """How programs are read and written: by koila's C boundary in this
    process, since starting LibTorch takes most of a koila-opt run, or by
    koila-opt alone. What the boundary refuses is asked of koila-opt, too."""

    def __init__(self, path, in_process):
        self.path = path
        self.library = Koila(path) if in_process else None

    def read(self, file, text, method="forward"):
        """Writes the program of an archive as text; the program as a file to go
        on with."""
        code = text.with_suffix(".mlirbc")
        if self.library:
            try:
                code.write_bytes(self.library.read(file, method))
            except Broken as error:
                raise Wrong(str(error)) from None
            except Refused:
                code.unlink(missing_ok=True)
            else:
                koila_opt(self.path, code, "-o", text)
                return code
        koila_opt(self.path, file, f"--function={method}", "-o", text)
        return file

    def write(self, program, written, method="forward"):
        """Writes what `read` gave as an archive."""
        if program.suffix != ".mlirbc":
            koila_opt(self.path, program, f"--function={method}", "-o", written)
            return
        try:
            self.library.write(program.read_bytes(), written)
        except Broken as error:
            raise Wrong(str(error)) from None
        except Refused as error:
            raise Refusal(f"error: {error}") from None

    def clean_up(self, text):
        for code in text.parent.glob(f"{text.stem}.*mlirbc"):
            code.unlink()


# Operations of nodes that no schema describes.
NODES = {"koila.attr.get": "prim::GetAttr", "koila.call_method": "prim::CallMethod"}


def is_container(fact):
    return fact.get("schema", "").split(".")[0] in CONTAINERS


def opaque_operators(facts):
    return collections.Counter(
        fact["schema"]
        for fact in facts
        if fact["op"] in {"koila.torch_op", *NODES} and not is_container(fact)
    )


def unknown_results(facts):
    """How many tensors there are, and how many per operator have no rank, an
    extent that is not known, or no element type."""
    count, unknown = 0, collections.Counter()
    for fact in facts:
        for result in fact["results"]:
            if "dims" not in result:
                continue
            count += 1
            dims = result["dims"]
            if dims is None or None in dims or result["element"] is None:
                unknown[fact.get("schema", fact["op"])] += 1
    return count, unknown


# What import makes of nodes that hold blocks.
REGIONS = {"scf.if": "prim::If", "scf.for": "prim::Loop", "scf.while": "prim::Loop"}


def base_name(schema):
    return schema.split(".")[0].rstrip("_")


class Extents:
    """Compares facts with what one run of PyTorch saw."""

    # Something else than data decides extents, too.
    open = False
    # An integer may be unknown as long as it is no extent: a counter, say.
    counters = False

    def __init__(self, truth, batch, trace):
        self.truth, self.batch, self.trace = truth, batch, trace
        self.symbols, self.places, self.unknown = {"B": batch}, {}, set()
        self.data_symbols = collections.OrderedDict()
        self.wrong, self.compared = [], 0
        # Operators with an extent that the batch decides, and that has a symbol
        # of its own.
        self.fresh = collections.Counter()
        # By node of a branch, where import has put its results.
        self.branches = {}

    def evaluate(self, expression, found, what, place):
        """The value of an expression. A symbol that data decide takes the
        value that is found where it comes alone, for all later uses: until
        the program comes to that place again."""
        if self.places.get(expression) == place:
            self.symbols[expression] = found
        integer = place[-1] == "integer"
        for symbol in SYMBOL.findall(expression):
            if symbol in FUNCTIONS or (
                symbol in self.symbols and (integer or symbol not in self.unknown)
            ):
                continue
            self.unknown.discard(symbol)
            if base_name(what) in DECIDED_BY_DATA or self.open:
                self.data_symbols.setdefault(symbol, what)
            elif integer and self.counters:
                self.unknown.add(symbol)
            else:
                self.fresh[what] += 1
            if symbol != expression:
                return None
            self.symbols[symbol], self.places[symbol] = found, place
        return eval(expression, {"__builtins__": {}}, FUNCTIONS | self.symbols)

    def check(self, what, result, value, place):
        if not isinstance(value, torch.Tensor):
            if result.get("integer"):
                self.compared += 1
                known = self.evaluate(result["integer"], value, what, (*place, "integer"))
                if known is not None and known != value:
                    self.wrong.append(f"{what}: {result['integer']} is {value} at B={self.batch}")
            return
        if "dims" not in result:
            return
        if result["element"] is not None:
            element = SIGNED.sub("i", result["element"])
            if element != MLIR_TYPES.get(value.dtype):
                self.wrong.append(f"{what}: {element} is {value.dtype}")
        if result["dims"] is None:
            return
        self.compared += 1
        spelled = f"[{', '.join(str(dim) for dim in result['dims'])}]"
        if len(result["dims"]) != value.dim():
            self.wrong.append(f"{what}: {spelled} is {list(value.shape)} at B={self.batch}")
            return
        for axis, (dim, extent) in enumerate(zip(result["dims"], value.shape, strict=True)):
            if dim is None:
                continue
            known = self.evaluate(dim, extent, what, (*place, axis))
            if known is not None and known != extent:
                self.wrong.append(f"{what}: {spelled} is {list(value.shape)} at B={self.batch}")
                return

    def is_integer(self, index):
        """Integers of traces are 0-dim tensors; both become arithmetic, of
        which there is no fact with a schema."""
        values = [value for node, _, value in self.trace if node == index]
        return all(
            not isinstance(value, list)
            and (
                not isinstance(value, torch.Tensor)
                or (value.dim() == 0 and value.dtype == torch.int64)
            )
            for value in values
        )

    def align(self, facts):
        """The facts of every node, whose number import left in their
        locations. A node that ran must have one, but for containers and
        integers."""
        found, names = collections.defaultdict(list), self.truth.names
        for fact in facts:
            index = fact["node"]
            schema = REGIONS.get(fact["op"], fact.get("schema"))
            # What import adds between two nodes has no number, nor what only reads.
            if schema is None or index is None or index < 0 or is_container(fact):
                continue
            name = names[index] if index < len(names) else "nothing"
            if base_name(name) != base_name(schema):
                raise Wrong(
                    f"node {index} is {name} in PyTorch and {schema} in "
                    "koila: the graphs do not match"
                )
            found[index].append(fact)
        for index in sorted({index for index, _, _ in self.trace}):
            if (
                index not in found
                and names[index].split(".")[0] not in CONTAINERS
                and not self.is_integer(index)
            ):
                raise Wrong(f"node {index}, {names[index]}, is not in koila's program")
        return found

    def find_result(self, index, number, results, value):
        """The place of a result of a branch, which import may put into another order:
        the first that can be `value` and is no other result's, the same each time."""

        def can_be(result):
            dims = result.get("dims")
            return (
                isinstance(value, torch.Tensor)
                and dims is not None
                and len(dims) == value.dim()
                and all(
                    not str(dim).isdigit() or int(dim) == extent
                    for dim, extent in zip(dims, value.shape, strict=True)
                )
            )

        places = self.branches.setdefault(index, {})
        if number not in places:
            order = sorted(range(len(results)), key=lambda place: place != number)
            free = [place for place in order if place not in places.values()]
            places[number] = next((p for p in free if can_be(results[p])), number)
        return places[number]

    def run(self, facts):
        facts_of = self.align(facts)
        for index, number, value in self.trace:
            for fact in facts_of.get(index, ()):
                values = {number: value}
                # A list of a known length is that many results.
                if isinstance(value, list):
                    values = dict(enumerate(value))
                for number, value in values.items():
                    if self.truth.names[index] == "prim::If":
                        number = self.find_result(index, number, fact["results"], value)
                    if number < len(fact["results"]):
                        self.check(
                            self.truth.names[index], fact["results"][number], value, (index, number)
                        )


def parse_facts(text):
    facts = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    return [{"schema": NODES[fact["op"]]} | fact if fact["op"] in NODES else fact for fact in facts]


def static_spec(spec, batch):
    """The batch as a number: `float32[B=3,8]`."""
    return re.sub(
        r"\[[^\]\[]*\]", lambda match: re.sub(r"\bB\b", f"B={batch}", match.group(0)), spec
    )


def infer(tool, file, specs, method="forward"):
    """The facts of an archive or of what `Tool.read` gave, and all that is printed."""
    errors = koila_opt(
        tool.path,
        file,
        f"--function={method}",
        *(f"--input={spec}" for spec in specs),
        "--koila-infer-shapes",
        "--koila-print-facts",
        "-o",
        "/dev/null",
    )
    return parse_facts(errors), errors


def check_extents(report, facts, truth, make_inputs, batches, extents_class=Extents):
    """Fills in the columns on extents."""
    wrong, fresh, symbols, compared = [], collections.Counter(), {}, None
    for batch in batches:
        extents = extents_class(truth, batch, truth.run(make_inputs(batch)))
        extents.run(facts)
        wrong += extents.wrong
        fresh |= extents.fresh
        symbols |= extents.data_symbols
        compared = extents.compared
    report["wrong"] += dict.fromkeys(wrong)
    report["fresh"] = report["fresh"] | fresh
    report["symbols"] |= symbols
    report["compared"] = report.get("compared", 0) + compared


def specialization_error(truth, specs):
    """What PyTorch says where the program accepts the batch it was traced
    with only; None if it accepts all."""
    for batch in BATCHES:
        try:
            truth.run(inputs.make(specs, batch))
        except Exception as error:
            lines = [line for line in str(error).splitlines() if line.strip()]
            return lines[-1].removeprefix("RuntimeError: ")
    return None


def reported_batch(tool, file, specs):
    """What koila says of a file that accepts one batch only; None if nothing."""
    try:
        _, printed = infer(tool, file, specs)
    except Refusal as refusal:
        printed = refusal.printed
    if "re-trace" not in printed:
        return None
    return first_line(printed, ("error", "warning", "remark"))


def check_inference(report, tool, file, truth, specs):
    batches, given = BATCHES, specs
    if error := specialization_error(truth, specs):
        report["specialized"] = without_machine(error)
        report["batch_reported"] = reported_batch(tool, file, specs)
        if not report["batch_reported"]:
            report["unreported"].append(report["specialized"])
        batches = (make_programs.TRACED_BATCH,)
        given = [static_spec(spec, batches[0]) for spec in specs]
    facts, _ = infer(tool, file, given)
    report["opaque"] = opaque_operators(facts)
    report["tensors"], report["unknown"] = unknown_results(facts)
    check_extents(report, facts, truth, lambda batch: inputs.make(specs, batch), batches)


def same_results(one, other, path="result"):
    """None, or where two results differ by a bit or in kind."""
    if type(one) is not type(other):
        return f"{path} is {type(other).__name__}"
    if isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or one.shape != other.shape:
            return f"{path} has another type or shape"
        same = (one == other) | ((one != one) & (other != other))
        return None if same.all() else f"{path} has other values"
    if isinstance(one, dict):
        if list(one) != list(other):
            return f"{path} has other keys"
        parts = [(key, one[key], other[key]) for key in one]
    elif isinstance(one, (list, tuple)):
        if len(one) != len(other):
            return f"{path} has another length"
        parts = [(i, *pair) for i, pair in enumerate(zip(one, other, strict=True))]
    else:
        return None if one == other else f"{path} is {other}"
    for key, left, right in parts:
        if difference := same_results(left, right, f"{path}[{key}]"):
            return difference
    return None


def call(module, specs, batch):
    torch.manual_seed(0)
    with torch.no_grad():
        return module(*inputs.make(specs, batch))


def method_lines(module):
    """Names and signatures, in the order of the archive."""
    return [
        check_roundtrip.MANGLED.sub("", str(module._c._get_method(name).schema))
        for name in module._c._method_names()
    ]


def compare_contents(file, written):
    """None, or what the modules differ in before they are called."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            check_roundtrip.compare_lines(
                "archives",
                check_roundtrip.archive_lines(file),
                check_roundtrip.archive_lines(written),
            )
            one, other = torch.jit.load(file), torch.jit.load(written)
            check_roundtrip.compare_lines(
                "modules", check_roundtrip.module_lines(one), check_roundtrip.module_lines(other)
            )
            check_roundtrip.compare_lines("methods", method_lines(one), method_lines(other))
    except SystemExit as difference:
        return " ".join(str(difference).split())[:150]
    return None


def read_again(tool, written, text, again, method="forward"):
    """Reads what koila wrote; it must be the program in `text`."""
    try:
        tool.read(written, again, method)
    except Refusal as refusal:
        raise Wrong(f"read again: {refusal}") from None
    if same_ir.lines(text) != same_ir.lines(again):
        raise Wrong("the IR differs when the written file is read again")
    again.unlink()


def round_trip(tool, file, program, text, specs, batches):
    """Writes a program, and compares that with what was read."""
    written = text.with_suffix(".pt")
    tool.write(program, written)
    read_again(tool, written, text, text.with_suffix(".again.mlir"))
    if difference := compare_contents(file, written):
        raise Wrong(difference)
    one, other = torch.jit.load(file), torch.jit.load(written)
    for batch in batches:
        before = call(one, specs, batch)
        if difference := same_results(before, call(other, specs, batch)):
            raise Wrong(f"{difference} at B={batch}")
        if not any(value.count_nonzero() for value in tensors_of(before)):
            raise Wrong("vacuous: all results are zero")
    written.unlink()


def tensors_of(value):
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, dict):
        value = list(value.values())
    if isinstance(value, (list, tuple)):
        return [tensor for part in value for tensor in tensors_of(part)]
    return []


def new_report(name):
    """What corpus.py puts into the table, and judges."""
    return {
        "name": name,
        "scripted": name in SCRIPTED,
        "imported": False,
        "round_trip": False,
        # Diagnostics of koila; sentences about results that are wrong; and what
        # PyTorch raises at other batches without a diagnostic of koila.
        "refused": [],
        "wrong": [],
        "unreported": [],
        "nodes": 0,
        "operators": [],
        # By operator: how many koila has no operation for, how many results
        # have no rank, extent or element type, and how many extents that the
        # batch decides have a symbol of their own.
        "opaque": collections.Counter(),
        "unknown": collections.Counter(),
        "fresh": collections.Counter(),
        "symbols": {},
    }


def evaluate(name, tool, folder):
    """What there is to report of a traced program."""
    torch.set_num_threads(1)
    torch._C._jit_set_profiling_executor(False)
    report = new_report(name)
    file = folder / f"{name}.pt"
    error = folder / f"{name}.error"
    if error.exists():
        report["wrong"].append("not traced: " + without_machine(error.read_text().splitlines()[0]))
        return report
    specs = json.loads((folder / f"{name}.inputs").read_text())
    text = folder / "written" / f"{name}.mlir"
    text.parent.mkdir(exist_ok=True)
    with recording(report, "import"):
        program = tool.read(file, text)
        report["imported"] = True
    truth = Truth(torch.jit.load(file))
    report["nodes"] = len(truth.all_names)
    report["operators"] = sorted(set(truth.all_names) - {"prim::Constant", "prim::GetAttr"})
    if not report["imported"]:
        return report
    with recording(report, "inference"):
        check_inference(report, tool, program, truth, specs)
    batches = (make_programs.TRACED_BATCH,) if report.get("specialized") else ROUND_TRIP_BATCHES
    with recording(report, "round trip"):
        round_trip(tool, file, program, text, specs, batches)
        report["round_trip"] = True
        text.unlink()
    tool.clean_up(text)
    return report
