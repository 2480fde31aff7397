"""Operators with rules of the program's own: predicted to the byte, and tiled."""

import itertools
import warnings
from typing import Any

import pytest
import torch
from torch import nn
from torch.nn import functional

import koila
from koila import check_op
from koila.memory import CountedMemory
from scaled_gelu import Rules, scaled_gelu


def register_gelu(**changed):
    rules = {
        "batch": 0,
        "forward": Rules.forward,
        "saved": Rules.saved,
        "backward": Rules.backward,
        **changed,
    }
    koila.register(scaled_gelu, **rules)


@pytest.fixture(autouse=True)
def fresh():
    torch.manual_seed(0)
    register_gelu()


class Model(nn.Module):
    def __init__(self, activate=lambda x: scaled_gelu(x, 2.0)):
        super().__init__()
        self.first = nn.Linear(64, 128)
        self.second = nn.Linear(128, 10)
        self.activate = activate

    def forward(self, x):
        return self.second(self.activate(self.first(x)))


def measure(run):
    """Bytes at the worst moment of a second run."""
    run()
    with CountedMemory() as memory:
        kept = run()
        found = memory.get_peak()
    del kept
    return found


def measure_step(model, x, y):
    def step():
        functional.cross_entropy(model(x), y).backward()

    return measure(step)


def reasons(report):
    return [doubt["reason"] for doubt in report.data["inexact"]]


def check_predicted(model, x, y):
    """Every mode is exact, and right."""
    report = koila.analyze(model, x)
    with torch.no_grad():
        # TorchScript lets go earlier than Python does.
        traced = torch.jit.trace(model, x, check_trace=False)
        assert (report.exact, report.peak) == (True, measure(lambda: traced(x))), reasons(report)
    report = koila.analyze(model, x, y, mode="train", loss="cross_entropy")
    assert (report.exact, report.peak) == (True, measure_step(model, x, y)), reasons(report)


def check_tiled(model, x, y):
    """Tiles give what the whole batch gives, in less memory."""
    wanted = model(x)
    compiled = koila.compile(model, x, tile=8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), wanted)
    functional.cross_entropy(wanted, y).backward()
    gradients = [parameter.grad.clone() for parameter in model.parameters()]
    assert all(gradient.abs().max() > 0 for gradient in gradients)
    whole = koila.analyze(model, x, y, mode="train", loss="cross_entropy")
    compiled = koila.compile(model, x, y, tile=8, loss="cross_entropy")
    for parameter in model.parameters():
        parameter.grad.zero_()
    compiled.train_step(x, y)
    for parameter, gradient in zip(model.parameters(), gradients, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert compiled.report.peak < whole.peak / 3
    assert compiled.report.exact, reasons(compiled.report)
    assert measure(lambda: compiled.train_step(x, y)) == compiled.report.peak


@pytest.mark.parametrize("samples", [1, 7, 64])
def test_predicted_to_the_byte(samples):
    check_predicted(Model(), torch.randn(samples, 64), torch.randint(10, (samples,)))


def test_rules_are_no_rules_of_a_gpu():
    register_gelu()
    report = koila.analyze(Model(), torch.randn(8, 64), device="cuda")
    assert not report.exact
    assert any("scaled_gelu' hold on the CPU" in reason for reason in reasons(report))


def test_tiled():
    check_tiled(Model(), torch.randn(64, 64), torch.randint(10, (64,)))


def test_a_wrong_rule_gives_another_figure():
    """The control: figures come from the rules."""
    register_gelu(forward=lambda trace, x, scale: None)
    x = torch.randn(64, 64)
    model = Model()
    traced = torch.jit.trace(model, x, check_trace=False)
    with torch.no_grad():
        assert koila.analyze(model, x).peak < measure(lambda: traced(x))


@pytest.mark.parametrize("mode", ["inference", "forward-with-grad", "train"])
@pytest.mark.parametrize("left_out", ["forward", "saved", "backward"])
def test_what_is_left_out_is_said(mode, left_out):
    register_gelu(**{left_out: None})
    report = koila.analyze(
        Model(),
        torch.randn(8, 64),
        *([torch.randint(10, (8,))] if mode == "train" else []),
        mode=mode,
        loss="cross_entropy" if mode == "train" else None,
    )
    is_asked = {
        "forward": True,
        "saved": mode != "inference",
        "backward": mode == "train",
    }[left_out]
    text = f"no {left_out} rule of 'rulesof::scaled_gelu' is registered"
    assert any(text in reason for reason in reasons(report)) == is_asked
    assert report.exact != is_asked


_seen = []


def average(x):
    _seen.append(len(x))
    return x - x.mean(0, keepdim=True)


@pytest.mark.parametrize(
    "batch, reason",
    [
        (None, "no batch rule of 'rulesof::averaged' is registered"),
        (lambda x: "the mean is of all samples", "the mean is of all samples"),
    ],
)
def test_a_cross_sample_operator_runs_whole(batch, reason):
    operator = define("rulesof::averaged", "Tensor x", average)
    koila.register(operator, batch=batch, forward=lambda trace, x: trace.allocate(x[:1].clone()))
    model, x = Model(operator), torch.randn(8, 64)
    compiled = koila.compile(model, x, tile=2, check=False)
    _seen.clear()
    with torch.no_grad():
        result = compiled(x)
        assert _seen == [8]
        torch.testing.assert_close(result, model(x))
    # Alone there is nothing to split, and that is said.
    with pytest.raises(koila.CompileError, match=reason):
        koila.compile(Alone(operator), x, tile=2)


class Alone(nn.Module):
    def __init__(self, operator):
        super().__init__()
        self.operator = operator

    def forward(self, x):
        return self.operator(x)


def test_a_batch_that_moves():
    """Rules are told where the batch is, and may say that it is elsewhere afterwards."""
    name = "rulesof::turned"
    turned = define(name, "Tensor x, Tensor w", lambda x, w: (x @ w).transpose(0, 1).contiguous())
    seen = []

    def batch(x, w):
        seen.append((x, w))
        return 1 if x.batch == 0 else "not by rows"

    koila.register(name, batch=batch, forward=lambda trace, x, w: trace.allocate(w))

    class Turned(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64, 32))

        def forward(self, x):
            return turned(x, self.weight).relu().transpose(0, 1)

    x = torch.randn(16, 64)
    model = Turned()
    compiled = koila.compile(model, x, tile=4)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), model(x))
    assert (koila.BatchArgument(0, 2), koila.BatchArgument(None, 2)) in seen


_libraries = []


def define(name, arguments, function, results="Tensor"):
    """An operator whose gradient is that of what it calls."""
    namespace, _, base = name.partition("::")
    if hasattr(getattr(torch.ops, namespace), base):
        return getattr(getattr(torch.ops, namespace), base)
    library = torch.library.Library(namespace, "FRAGMENT")
    library.define(f"{base}({arguments}) -> {results}")
    library.impl(base, function, "CompositeImplicitAutograd")
    _libraries.append(library)
    return getattr(getattr(torch.ops, namespace), base)


def test_a_rule_for_shapes():
    """An operator without a fake kernel, which loses half of its columns."""
    library = torch.library.Library("rulesof", "FRAGMENT")
    library.define("halved(Tensor x) -> Tensor")
    library.impl("halved", lambda x: x[:, : x.shape[1] // 2].contiguous(), "CPU")
    _libraries.append(library)

    class Halved(nn.Module):
        def forward(self, x):
            return torch.ops.rulesof.halved(x) + 1

    x = torch.randn(16, 10)
    koila.register(
        "rulesof::halved",
        shape=lambda x: x.new_empty(x.shape[0], x.shape[1] // 2),
        batch=0,
        forward=lambda trace, x: None,
    )
    model = Halved()
    report = koila.analyze(model, x)
    traced = torch.jit.trace(model, x, check_trace=False)
    with torch.no_grad():
        assert (report.exact, report.peak) == (True, measure(lambda: traced(x))), reasons(report)
        torch.testing.assert_close(koila.compile(model, x, tile=4)(x), model(x))
    # Without one nothing is known of what it makes.
    koila.register("rulesof::halved", batch=0, forward=lambda trace, x: None)
    report = koila.analyze(model, x)
    assert not report.exact
    assert any("the size of a result is not known" in reason for reason in reasons(report))


def test_a_view():
    library = torch.library.Library("rulesof", "FRAGMENT")
    library.define("rows(Tensor(a) x) -> Tensor(a)")
    library.impl("rows", lambda x: x.view(x.shape[0], -1), "CompositeImplicitAutograd")
    _libraries.append(library)
    koila.register("rulesof::rows", batch=0, forward=lambda trace, x: None)

    class Rows(nn.Module):
        def forward(self, x):
            return torch.ops.rulesof.rows(x * 2) + 1

    x = torch.randn(8, 4, 4)
    model = Rows()
    traced = torch.jit.trace(model, x, check_trace=False)
    report = koila.analyze(model, x)
    with torch.no_grad():
        assert (report.exact, report.peak) == (True, measure(lambda: traced(x))), reasons(report)
        # The product, the sum, and the number that is added.
        assert report.peak == 2 * x.nbytes + 12


def test_two_results():
    library = torch.library.Library("rulesof", "FRAGMENT")
    library.define("both(Tensor x, int k=2) -> (Tensor, Tensor)")
    library.impl("both", lambda x, k=2: (x * k, x.sum(-1)), "CompositeImplicitAutograd")
    _libraries.append(library)

    def forward(trace, x, k):
        # The first is there when the second is made.
        trace.allocate_result(0)
        trace.allocate_result(1)

    koila.register("rulesof::both", batch=0, forward=forward)

    class Both(nn.Module):
        def forward(self, x):
            product, total = torch.ops.rulesof.both(x)
            return product / total.unsqueeze(1)

    x = torch.randn(8, 4) + 5
    model = Both()
    traced = torch.jit.trace(model, x, check_trace=False)
    report = koila.analyze(model, x)
    with torch.no_grad():
        assert (report.exact, report.peak) == (True, measure(lambda: traced(x))), reasons(report)
        torch.testing.assert_close(koila.compile(model, x, tile=2)(x), model(x))


class Squared(torch.autograd.Function):
    """The square, times a factor."""

    @staticmethod
    def forward(ctx, x, factor: float):
        ctx.save_for_backward(x)
        ctx.factor = factor
        return x * x * factor

    @staticmethod
    def backward(ctx, grad):
        (x,) = ctx.saved_tensors
        return grad * x * (2 * ctx.factor), None


def register_squared():
    def forward(trace, x, factor):
        trace.allocate(x)
        trace.allocate_result()
        trace.temporary(8 + x.itemsize)

    def backward(trace, grad, inputs, output):
        trace.allocate(inputs[0])
        gradient = trace.allocate(inputs[0])
        # The factor, while the gradient is made.
        trace.temporary(8 + grad.itemsize)
        return gradient, None

    koila.register(
        Squared,
        batch=0,
        forward=forward,
        saved=lambda inputs, output: [inputs[0]],
        backward=backward,
    )


def test_an_autograd_function():
    register_squared()
    make = lambda: Model(lambda x: Squared.apply(x, 0.5))
    x, y = torch.randn(64, 64), torch.randint(10, (64,))
    # A step is recorded through the function itself.
    check_predicted(make(), x, y)
    check_tiled(make(), x, y)
    assert check_op(Squared).agrees


def test_a_lazy_program():
    """One line, and a budget below what the whole batch needs."""
    x, y = torch.randn(256, 64), torch.randint(10, (256,))
    model = Model()
    functional.cross_entropy(model(x), y).backward()
    wanted = [parameter.grad.clone() for parameter in model.parameters()]
    for parameter in model.parameters():
        parameter.grad = None
    whole = koila.analyze(model, x, y, mode="train", loss="cross_entropy").peak
    input, label = koila.lazy(x, y, batch=0, budget=whole // 2)
    loss = functional.cross_entropy(model(input), label)
    loss.backward()
    for parameter, gradient in zip(model.parameters(), wanted, strict=True):
        torch.testing.assert_close(parameter.grad, gradient)
    assert koila.last().tile < 256


def test_a_rule_that_raises():
    def forward(trace, x, scale):
        raise KeyError("no such figure")

    register_gelu(forward=forward)
    text = "the forward rule of 'rulesof::scaled_gelu' raised KeyError: 'no such figure'"
    with pytest.raises(koila.KoilaError, match=text) as caught:
        koila.analyze(Model(), torch.randn(4, 64))
    assert isinstance(caught.value.__cause__, KeyError)
    # It is over with that call.
    register_gelu()
    assert koila.analyze(Model(), torch.randn(4, 64)).exact


def test_interrupted_in_a_rule():
    def forward(trace, x, scale):
        raise KeyboardInterrupt

    register_gelu(forward=forward)
    with pytest.raises(KeyboardInterrupt):
        koila.analyze(Model(), torch.randn(4, 64))


@pytest.mark.parametrize(
    "rule, wrong, text",
    [
        ("batch", lambda x, scale: 1.5, "it gives 1.5: a dim from 0 on"),
        ("batch", lambda x, scale: [0, 0], "it names 2 results, and the operator has 1"),
        ("saved", lambda inputs, output: ["x"], "it gives 'x': what autograd keeps"),
        ("backward", lambda trace, grad, inputs, output: grad, "it gives 1 gradients"),
        (
            "backward",
            lambda trace, grad, inputs, output: (torch.empty(3, device="meta"), None),
            "a gradient is None, a gradient that arrived",
        ),
        ("forward", lambda trace, x, scale: trace.allocate(-1), "a block has a number of bytes"),
        ("forward", lambda trace, x, scale: trace.allocate_result(1), "result 1 is not there"),
    ],
)
def test_answers_that_are_none(rule, wrong, text):
    register_gelu(**{rule: wrong})
    with pytest.raises(koila.KoilaError, match=text):
        if rule == "batch":
            koila.compile(Model(), torch.randn(8, 64), tile=2)
        else:
            inputs = torch.randn(8, 64), torch.randint(10, (8,))
            koila.analyze(Model(), *inputs, mode="train", loss="cross_entropy")


def test_refused():
    define_refused()
    refused: list[tuple[Any, dict[str, Any], str]] = [
        ("rulesof::nothing", {}, "knows no operator 'rulesof::nothing'"),
        ("no name", {}, "is no name of an operator"),
        (3, {}, "3 is no operator"),
        ("aten::add", {}, "has several overloads: give one of 'aten::add.Tensor'"),
        ("aten::add_.Tensor", {}, "writes to its arguments"),
        ("aten::bernoulli", {}, "draws random numbers|several overloads"),
        ("aten::stack.default", {}, "List\\[Tensor\\]"),
        (scaled_gelu, {"device": "cuda"}, 'device="cuda"'),
        (scaled_gelu, {"batch": -1}, "batch=-1"),
        (scaled_gelu, {"batch": True}, "batch=True"),
        (scaled_gelu, {"forward": lambda trace: None}, "it is called as forward\\(trace, x, scale"),
        (scaled_gelu, {"forward": 3}, "forward=3: a rule is a function"),
        (scaled_gelu, {"saved": lambda: None}, "it is called as saved\\(inputs, output"),
        (scaled_gelu, {"storage": "x"}, "one entry for each result"),
        (scaled_gelu, {"storage": ["y"]}, "has no argument 'y'"),
        (scaled_gelu, {"storage": ["x", "x"]}, "has 2 entries, and the operator 1"),
        (scaled_gelu, {"storage": {1: "x"}}, "the operator has 1 results"),
        ("rulesof::rows_too", {"storage": [None]}, "is a view of 'x'"),
        (Listed, {}, "takes \\*args or keywords"),
        (Odd, {}, "'x' is a <class 'dict'>"),
    ]
    for op, rules, text in refused:
        with pytest.raises(koila.KoilaError, match=text):
            koila.register(op, **rules)


def define_refused():
    library = torch.library.Library("rulesof", "FRAGMENT")
    library.define("rows_too(Tensor(a) x) -> Tensor(a)")
    _libraries.append(library)


class Listed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, *tensors):
        return tensors[0].clone()


class Odd(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x: dict):
        return torch.ones(3)


def test_transient_bytes():
    """Results are there from the start, unless the rule says when they are made."""
    results = [torch.empty(10, device="meta"), torch.empty(5, device="meta")]
    for late, expected in [((), 100), ((0,), 100 - 40), ((0, 1), 100 - 60)]:
        trace = koila.KernelTrace(1, results)
        block = trace.allocate(100)
        block.free()
        for index in late:
            trace.allocate_result(index)
        assert trace.get_transient() == max(expected, 0)
    with pytest.raises(RuntimeError, match="freed twice"):
        block.free()


def test_every_batch_size_of_the_curve():
    """Figures for other batches than that of the example, to the byte."""
    model = Model()
    report = koila.analyze(model, torch.randn(8, 64))
    sizes = dict(report._peaks())
    for samples in itertools.islice(sizes, 0, None, max(len(sizes) // 5, 1)):
        x = torch.randn(samples, 64)
        traced = torch.jit.trace(model, x, check_trace=False)
        with torch.no_grad():
            assert sizes[samples] == measure(lambda: traced(x))  # noqa: B023


class Both(torch.autograd.Function):
    """Two results: autograd makes zeros for the gradient of one that nothing reads."""

    @staticmethod
    def forward(ctx, x) -> tuple[torch.Tensor, torch.Tensor]:
        return x * 2, x + 1

    @staticmethod
    def backward(ctx, left, right):
        return left + right


@pytest.mark.parametrize("read", [0, 1])
def test_a_gradient_that_does_not_arrive(read):
    def forward(trace, x):
        trace.allocate_result(0)
        trace.temporary(8 + x.itemsize)
        trace.allocate_result(1)
        trace.temporary(8 + x.itemsize)

    koila.register(
        Both,
        batch=0,
        forward=forward,
        saved=lambda inputs, output: [],
        backward=lambda trace, grads, inputs, output: (trace.allocate(grads[0]),),
    )
    x, y = torch.randn(64, 64), torch.randint(10, (64,))
    check_predicted(Model(lambda x: Both.apply(x)[read]), x, y)
    assert check_op(Both).agrees


def test_rows_of_samples_that_are_interleaved():
    class Interleaved(nn.Module):
        def forward(self, x):
            samples = x.shape[0]
            rows = scaled_gelu(x.transpose(0, 1).reshape(6 * samples, 4), 2.0)
            return rows.reshape(6, samples, 4).transpose(0, 1) + x

    x = torch.randn(8, 6, 4)
    model = Interleaved()
    with torch.no_grad():
        torch.testing.assert_close(koila.compile(model, x, tile=2)(x), model(x))


def test_rules_that_come_later():
    """What was planned or refused before goes by the rules that are there now."""
    register_gelu(batch=None, forward=None)
    x, y = torch.randn(256, 64), torch.randint(10, (256,))
    model = Model()
    whole = 300_000

    def step():
        for parameter in model.parameters():
            parameter.grad = None
        input, label = koila.lazy(x, y, batch=0, budget=whole)
        functional.cross_entropy(model(input), label).backward()
        return koila.last().tile

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        before = step()
    register_gelu()
    # Without rules it runs whole between tiles of what is around it.
    assert (before or 1) < step() < 256


def test_tensors_that_are_expanded():
    """A block for a tensor is as large as its elements, however few places these have."""

    class Expanded(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(64))
            self.linear = nn.Linear(64, 64)

        def forward(self, x):
            return scaled_gelu(self.weight.expand(x.shape[0], 64), 2.0) + x

    class Summed(Expanded):
        def forward(self, x):
            return scaled_gelu(self.linear(x), 2.0).sum(1)

    x = torch.randn(512, 64)
    traced = torch.jit.trace(Expanded(), x, check_trace=False)
    report = koila.analyze(Expanded(), x)
    with torch.no_grad():
        assert (report.exact, report.peak) == (True, measure(lambda: traced(x))), reasons(report)
    # The gradient of a sum is expanded.
    y, model = torch.randn(512), Summed()
    report = koila.analyze(model, x, y, mode="train", loss="mse_loss")
    found = measure(lambda: functional.mse_loss(model(x), y).backward())
    assert (report.exact, report.peak) == (True, found), reasons(report)


def test_results_in_the_order_of_the_argument():
    """A fake kernel gives them strides, which decide what a reshape copies."""

    class Turned(nn.Module):
        def forward(self, x):
            turned = scaled_gelu(x.transpose(1, 2), 2.0)
            return turned.reshape(x.shape[0], -1) + 1, turned

    x = torch.randn(16, 32, 64)
    traced = torch.jit.trace(Turned(), x, check_trace=False)
    report = koila.analyze(Turned(), x)
    with torch.no_grad():
        found = measure(lambda: traced(x))
    assert not report.exact or report.peak == found, reasons(report)
    assert report.exact, reasons(report)


class Keyed(torch.autograd.Function):
    @staticmethod
    def forward(x, k: float = 1.0):
        return x * k

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.k = inputs[1]

    @staticmethod
    def backward(ctx, grad):
        return grad * ctx.k, None


def test_a_registered_function_stays_what_it_was():
    x = torch.ones(2)
    before = torch.jit.trace(lambda x: Keyed.apply(x, 3.0), x, check_trace=False).graph
    koila.register(Keyed, batch=0)
    assert Keyed.apply(x, k=3.0).tolist() == [3.0, 3.0]
    after = torch.jit.trace(lambda x: Keyed.apply(x, 3.0), x, check_trace=False).graph
    kinds = [[node.kind() for node in graph.nodes()] for graph in (before, after)]
    assert kinds[0] == kinds[1] and "prim::PythonOp" in kinds[0]


def test_a_cell_that_runs_again():
    def make():
        class Again(Keyed):
            pass

        return Again

    names = set()
    for _ in range(3):
        function = make()
        koila.register(function, batch=0)
        names.add(check_op(function).name)
    assert len(names) == 3


def test_functions_that_cannot_be_registered_or_recorded():
    class Own(Keyed):
        @classmethod
        def apply(cls, x, k):
            return super().apply(x, float(k) + 1)

    with pytest.raises(koila.KoilaError, match=r"has an apply\(\) of its own"):
        koila.register(Own)

    class Plain(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x, k):
            return x * k

        @staticmethod
        def backward(ctx, grad):
            return grad, None

    koila.register(Plain, batch=0)
    with pytest.raises(koila.KoilaError, match="annotate it in forward"):
        koila.analyze(Model(lambda x: Plain.apply(x, 0.5)), torch.randn(4, 64))


def test_keyword_only_arguments():
    define("rulesof::keyed", "Tensor x, *, float scale=1.0", lambda x, scale=1.0: x * scale)
    koila.register("rulesof::keyed", shape=lambda x, *, scale=1.0: torch.empty_like(x), batch=0)
    with pytest.raises(koila.KoilaError, match=r"it is called as shape\(x, \*, scale\)"):
        koila.register("rulesof::keyed", shape=lambda x, s: torch.empty_like(x))
    assert check_op("rulesof::keyed").agrees
