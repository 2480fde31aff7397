"""Scripted programs, one per construct: classes, attributes, submodules,
methods, calls of functions, and traced and scripted parts that meet."""

from typing import Any, Dict, Final, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

ROWS = "float32[B,8]"


# ---------------------------------------------------------------------------
# Classes


class Box:
    """Methods, a property, and attributes that change."""

    def __init__(self, value: Tensor, scale: float = 2.0):
        self.value = value
        self.scale = scale
        self.uses = 0

    def scaled(self) -> Tensor:
        self.uses += 1
        return self.twice() * self.scale

    def twice(self) -> Tensor:
        return self.value + self.value

    @property
    def width(self) -> int:
        return self.value.size(1)


@scripted()
def script_class():
    def forward(self, x):
        box = Box(x)
        y = box.scaled()
        box.value = y.sin()
        box.scale = 0.5
        return y + box.scaled(), box.uses, box.width

    return network(forward), [ROWS]


@scripted()
def script_class_in_loop():
    """One object under two names, changed turn by turn."""

    def forward(self, x):
        box = Box(x, 0.5)
        same = box
        for i in range(3):
            box.value = box.scaled() + i
            if i == 1:
                same.scale = 1.5
        return same.value, same.uses

    return network(forward), [ROWS]


class Pair:
    """Operators of a class of one's own."""

    def __init__(self, a: Tensor, b: Tensor):
        self.a, self.b = a, b

    def __add__(self, other: "Pair") -> "Pair":
        return Pair(self.a + other.a, self.b * other.b)

    def __neg__(self) -> "Pair":
        return Pair(-self.a, self.b.reciprocal())

    def __len__(self) -> int:
        return self.a.size(1)

    def __getitem__(self, i: int) -> Tensor:
        return self.a[:, i] if i < 4 else self.b[:, i]

    def __contains__(self, i: int) -> bool:
        return 0 <= i and i < len(self)


@scripted()
def script_class_operators():
    def forward(self, x):
        pair = Pair(x, x.exp()) + -Pair(x.cos(), x * x + 1)
        total = pair[2] * len(pair)
        if 7 in pair and not 8 in pair:
            total = total + pair[7]
        return total, pair.a, pair.b

    return network(forward), [ROWS]


@scripted()
def script_class_list():
    """Objects in a list and in a dict, handed to a function."""

    def forward(self, x):
        boxes = [Box(x[:, :4]), Box(x[:, 4:], 3.0)]
        named: Dict[str, Box] = {"last": boxes[1]}
        named["last"].value = named["last"].value.tanh()
        total = torch.zeros_like(x[:, :4])
        for box in boxes:
            grow(box, 1.5)
            total = total + box.scaled()
        return total, boxes[1].value, boxes[0].uses

    return network(forward), [ROWS]


def grow(box: Box, by: float):
    box.scale = box.scale * by


@torch.jit.script
class Scaler:
    """An object that a module holds."""

    def __init__(self, scale: float):
        self.scale = scale
        self.calls: List[int] = []

    def run(self, x: Tensor) -> Tensor:
        self.calls.append(x.size(0))
        return x * self.scale + len(self.calls)


@scripted()
def script_class_attribute():
    """Its state outlives the call."""

    class Holding(nn.Module):
        scaler: Scaler

        def __init__(self):
            super().__init__()
            self.scaler = Scaler(1.5)

        def forward(self, x):
            return self.scaler.run(x) + self.scaler.run(x.sin())

    return Holding(), [ROWS]


class StepContext:
    """A class for `with`."""

    def __init__(self, log: List[int]):
        self.log = log

    def __enter__(self) -> int:
        self.log.append(1)
        return len(self.log)

    def __exit__(self, kind: Any, value: Any, trace: Any):
        self.log.append(2)


@scripted()
def script_with():
    def forward(self, x):
        log: List[int] = []
        with StepContext(log) as depth:
            x = x.sin() + depth
            with StepContext(log) as inner:
                x = x * inner
        return x, log

    return network(forward), [ROWS]


# ---------------------------------------------------------------------------
# Attributes


@scripted()
def script_attributes():
    """Every kind of attribute that is no tensor."""

    class Attributes(nn.Module):
        maybe: Optional[int]
        nothing: Optional[Tensor]
        names: List[str]
        table: Dict[str, int]
        pair: Tuple[int, float]
        empty: List[int]
        width: Final[int] = 8

        def __init__(self):
            super().__init__()
            self.count = 3
            self.scale = 0.5
            self.flag = True
            self.name = "exp"
            self.maybe = None
            self.nothing = None
            self.names = ["sin", "cos"]
            self.table = {"shift": 2, "more": 4}
            self.pair = (2, 1.5)
            self.empty = []
            self.complex = 1 + 2j
            self.device = torch.device("cpu")
            self.dtype = torch.float64

        def forward(self, x):
            y = x * self.scale + self.count
            if self.flag and self.name == "exp":
                y = y.exp()
            for name in self.names:
                y = y.sin() if name == "sin" else y.cos()
            if self.maybe is None and self.nothing is None:
                y = y + self.table["shift"] * self.pair[1]
            z = torch.ones(self.width, dtype=self.dtype, device=self.device)
            return y, z * self.pair[0] * x, (x * self.complex).imag

    return Attributes(), [ROWS]


@scripted()
def script_attribute_tensors():
    """Tensors that are no buffers: alone, optional, in a list, in a dict; two
    of them are one tensor."""

    class Tensors(nn.Module):
        parts: List[Tensor]
        named: Dict[str, Tensor]
        given: Optional[Tensor]
        absent: Optional[Tensor]
        pair: Tuple[Tensor, int]

        def __init__(self):
            super().__init__()
            self.plain = torch.randn(8)
            self.given = torch.randn(8)
            self.absent = None
            self.parts = [torch.randn(8), self.plain]
            self.named = {"a": torch.randn(8, 6), "b": torch.randn(6)}
            self.pair = (torch.randn(8), 2)

        def forward(self, x):
            y = x * self.plain
            given = self.given
            if given is not None:
                y = y + given
            if self.absent is not None:
                y = y * 0
            for part in self.parts:
                y = y.sin() + part
            y = y + self.pair[0] * self.pair[1]
            return y @ self.named["a"] + self.named["b"]

    return Tensors(), [ROWS]


@scripted()
def script_buffers():
    """Buffers that are none, not persistent, of integers, and views of one
    storage; a parameter that is none."""

    class Buffers(nn.Module):
        def __init__(self):
            super().__init__()
            base = torch.randn(2, 8)
            self.register_buffer("first", base[0])
            self.register_buffer("second", base[1])
            self.register_buffer("column", base.t())
            self.register_buffer("nothing", None)
            self.register_buffer("passing", torch.randn(8), persistent=False)
            self.register_buffer("order", torch.randperm(8))
            self.register_parameter("bias", None)
            self.frozen = nn.Parameter(torch.randn(8), requires_grad=False)

        def forward(self, x):
            y = x[:, self.order] * self.first + self.second * self.passing
            if self.bias is not None:
                y = y * 0
            return y * self.frozen, y @ self.column

    return Buffers(), [ROWS]


@scripted()
def script_constants():
    """Constants of the class and of the file, and tensors made of literals."""

    class Constants(nn.Module):
        __constants__ = ["steps"]

        def __init__(self):
            super().__init__()
            self.steps = 3

        def forward(self, x):
            for i in range(self.steps):
                x = x + torch.tensor([0.5, -1.5, 2.0, 0.25] * 2) * i
            return F.pad(x, [1, 2], value=0.125), torch.tensor(True) & (x > 0)

    return Constants(), [ROWS]


@scripted()
def script_parameter_list():
    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weights = nn.ParameterList([nn.Parameter(torch.randn(8, 8)) for _ in range(3)])
            self.named = nn.ParameterDict({"b": torch.randn(8)})

        def forward(self, x):
            for i, weight in enumerate(self.weights):
                x = (x @ weight).tanh() + i
            return x + self.named["b"]

    return Listed(), [ROWS]


@scripted()
def script_tied_weights():
    """One parameter under two names, and one module in two places."""

    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(11, 8)
            self.head = nn.Linear(8, 11, bias=False)
            self.head.weight = self.table.weight
            self.shared = nn.Linear(8, 8)
            self.stack = nn.Sequential(self.shared, nn.Tanh(), self.shared)

        def forward(self, i):
            x = self.table(i)
            return self.head(self.stack(x) + self.shared(x))

    return Tied(), ["int64[B,6]{0:11}"]


# ---------------------------------------------------------------------------
# Submodules


@scripted()
def script_module_list():
    """Over all, by place, in reverse, zipped, and a part of it."""

    class Listed(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(3)])
            self.norms = nn.ModuleList([nn.LayerNorm(8) for _ in range(3)])

        def forward(self, x):
            for i, (layer, norm) in enumerate(zip(self.layers, self.norms)):
                x = norm(x + layer(x) * i)
            for layer in self.layers[1:]:
                x = layer(x).relu()
            return self.layers[0](x) + self.layers[-1](x), len(self.layers)

    return Listed(), [ROWS]


@scripted()
def script_module_dict():
    class Keyed(nn.Module):
        def __init__(self):
            super().__init__()
            self.parts = nn.ModuleDict({"first": nn.Linear(8, 6), "second": nn.Linear(8, 6)})

        def forward(self, x):
            out: Dict[str, Tensor] = {}
            for name, part in self.parts.items():
                out[name] = part(x)
            if "first" in self.parts:
                out["both"] = self.parts["first"](x) * out["second"]
            for part in self.parts.values():
                out["both"] = out["both"] + part(x.sin())
            return out

    return Keyed(), [ROWS]


@torch.jit.interface
class Layer(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        pass

    def name_length(self) -> int:
        pass


class Sine(nn.Module):
    def __init__(self, factor: float):
        super().__init__()
        self.factor = factor
        self.fc = nn.Linear(8, 8)

    def forward(self, x: Tensor) -> Tensor:
        return (self.fc(x) * self.factor).sin()

    @torch.jit.export
    def name_length(self) -> int:
        return 4


class Scale(nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(8))

    def forward(self, x: Tensor) -> Tensor:
        return x * self.weight

    @torch.jit.export
    def name_length(self) -> int:
        return 5


class Chosen(nn.Module):
    """Which module is called, an index decides."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList([Sine(2.0), Scale(), Sine(0.5)])

    def forward(self, x, turns: int):
        total = 0
        for i in range(turns):
            layer: Layer = self.layers[i % 3]
            x = layer.forward(x) + i
            total += layer.name_length()
        return x, total


@scripted()
def script_interface_index():
    return Chosen(), [ROWS, "5"]


@scripted()
def script_interface_attribute():
    """The attribute has the type of an interface."""

    class Holder(nn.Module):
        layer: Layer

        def __init__(self):
            super().__init__()
            self.layer = Scale()

        def forward(self, x):
            return self.layer(x) + self.layer.name_length()

    return Holder(), [ROWS]


@scripted()
def script_submodule_methods():
    """Methods of submodules other than forward, and their attributes."""

    class Codec(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 6)
            self.scale = 1.5

        def forward(self, x):
            return self.decode(self.encode(x))

        def encode(self, x):
            return self.fc(x).tanh()

        def decode(self, y, bias: float = 0.25):
            return (y - bias) @ self.fc.weight

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.codec = Codec()

        def forward(self, x):
            code = self.codec.encode(x)
            near = self.codec.decode(code * self.codec.scale, bias=0.5)
            return near + self.codec(x) + F.linear(code, self.codec.fc.weight.t())

    return Outer(), [ROWS]


@scripted()
def script_hooks():
    """What runs before and after forward."""

    class Hooked(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 6)

        def forward(self, x: Tensor) -> Tensor:
            return self.fc(x)

    def before(self, inputs: Tuple[Tensor]) -> Tuple[Tensor]:
        return (inputs[0].sin(),)

    def after(self, inputs: Tuple[Tensor], result: Tensor) -> Tensor:
        return result * 2 + inputs[0].mean()

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = Hooked()
            self.inner.register_forward_pre_hook(before)
            self.inner.register_forward_hook(after)

        def forward(self, x: Tensor) -> Tensor:
            return self.inner(x) + 1

    return Outer(), [ROWS]


# ---------------------------------------------------------------------------
# Methods other than forward


@scripted(methods={"encode": [ROWS], "decode": ["float32[B,6]", "2"]})
def script_export():
    """Methods that forward calls and does not call."""

    class Exported(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 6)
            self.unused = nn.Linear(3, 2)

        def forward(self, x):
            return self.encode(x).cos()

        @torch.jit.export
        def encode(self, x):
            return self.fc(x) - 1

        @torch.jit.export
        def decode(self, y, turns: int = 1):
            x = y @ self.fc.weight
            for _ in range(turns):
                x = x.tanh()
            return x

    return Exported(), [ROWS]


@scripted(methods={"reset": ["1.5"], "step": [ROWS], "state": []})
def script_export_state():
    """Methods that share state; only they change it."""

    class Stepper(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("total", torch.randn(8))
            self.steps = 0

        def forward(self, x):
            return x * self.total + self.steps

        @torch.jit.export
        def reset(self, value: float):
            self.total.fill_(value)
            self.steps = 0

        @torch.jit.export
        def step(self, x):
            self.steps += 1
            self.total = self.total * 0.5 + x.mean(0)
            return self.forward(x)

        @torch.jit.export
        def state(self) -> Tuple[Tensor, int]:
            return self.total, self.steps

    return Stepper(), [ROWS]


@scripted()
def script_unused():
    """Python that is not compiled: it raises, where it is not guarded."""

    class Part(nn.Module):
        def __init__(self):
            super().__init__()
            self.debug = False

        @torch.jit.unused
        def report(self, x: Tensor) -> Tensor:
            import this

            return this.x

        @torch.jit.ignore
        def draw(self):
            import this

            return this

        def forward(self, x):
            if self.debug:
                x = self.report(x)
            if not torch.jit.is_scripting():
                self.draw()
            return x.sin() + 1

    return Part(), [ROWS]


@scripted()
def script_property():
    """Properties of the module, with a setter."""

    class Proper(nn.Module):
        def __init__(self):
            super().__init__()
            self.hidden = 2

        @property
        def level(self) -> int:
            return self.hidden + 1

        @level.setter
        def level(self, value: int) -> None:
            self.hidden = value * 2

        def forward(self, x):
            x = x * self.level
            self.level = x.size(0)
            return x + self.level

    return Proper(), [ROWS]


# ---------------------------------------------------------------------------
# Calls, and traced parts


def softplus(x: Tensor, beta: float = 1.0, shift: int = 0) -> Tensor:
    return (x * beta).exp().log1p() / beta + shift


def many(x: Tensor) -> Tuple[Tensor, int, Optional[Tensor]]:
    if x.size(1) > 4:
        return x.cumsum(1), x.size(1), None
    return x, 0, x


@torch.jit.script
def twice(x: Tensor, times: int = 2) -> Tensor:
    for _ in range(times):
        x = softplus(x, shift=1)
    return x


@scripted()
def script_functions():
    """Defaults, keywords, several results, and calls in calls."""

    def forward(self, x):
        y, n, nothing = many(softplus(x, shift=2))
        if nothing is not None:
            y = nothing
        return twice(y) + softplus(x, beta=0.5) * n + twice(x, times=1)

    return network(forward), [ROWS]


@scripted()
def script_same_call():
    """One function, called often: each call has its own values."""

    def forward(self, x):
        a = twice(x, 1)
        b = twice(a, 1)
        parts = [twice(x, i) for i in range(3)]
        return a + b, torch.stack(parts, 1)

    return network(forward), [ROWS]


@scripted()
def script_traced_part():
    """A traced module and a traced function, called in a loop."""

    def traced_function(x, y):
        return x * 2 + y.sin()

    traced = torch.jit.trace(nn.Sequential(nn.Linear(8, 8), nn.Tanh()), torch.randn(3, 8))
    function = torch.jit.trace(traced_function, (torch.randn(3, 8),) * 2)

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.part = traced

        def forward(self, x):
            for _ in range(2):
                x = self.part(x) + function(x, x * 0.5)
            return x

    return Mixed(), [ROWS]


@scripted()
def script_in_trace():
    """A traced module that calls scripted ones: only they have branches."""

    class Gate(nn.Module):
        def forward(self, x, n: int):
            if x.size(0) > 3:
                x = x.tanh() + n
            for i in range(n):
                x = x * 0.5 + i
            return x

    gate = torch.jit.script(Gate())

    class Outer(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = nn.Linear(8, 8)
            self.gate = gate

        def forward(self, x):
            return self.gate(self.fc(x), 2) + twice(x)

    return torch.jit.trace(Outer().eval(), torch.randn(3, 8), check_trace=False), [ROWS]


@scripted()
def script_fork():
    """Two parts at the same time, waited for later."""

    def forward(self, x):
        one = torch.jit.fork(twice, x, 1)
        two = torch.jit.fork(twice, x.sin(), 2)
        y = x.cos()
        return y + torch.jit.wait(two) * torch.jit.wait(one)

    return network(forward), [ROWS]


@scripted()
def script_set_state():
    """What is saved and loaded is not what is used."""

    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = torch.randn(8, 6)
            self.training = False

        def forward(self, x):
            return x @ self.weight

        @torch.jit.export
        def __getstate__(self):
            return self.weight.t().contiguous(), self.training

        @torch.jit.export
        def __setstate__(self, state: Tuple[Tensor, bool]):
            self.weight = state[0].t()
            self.training = state[1]

    return Packed(), [ROWS]


# ---------------------------------------------------------------------------
# Recurrent networks


@scripted()
def script_rnn_cell():
    """A cell of one's own in a loop over time."""

    class Cell(nn.Module):
        def __init__(self):
            super().__init__()
            self.input, self.state = nn.Linear(8, 12), nn.Linear(12, 12)

        def forward(self, x, h):
            return torch.tanh(self.input(x) + self.state(h))

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = Cell()

        def forward(self, x, h: Optional[Tensor] = None):
            if h is None:
                h = torch.zeros(x.size(0), 12, dtype=x.dtype)
            out: List[Tensor] = []
            for t in range(x.size(1)):
                h = self.cell(x[:, t], h)
                out.append(h)
            return torch.stack(out, 1), h

    return Recurrent(), ["float32[B,6,8]"]


@scripted()
def script_lstm_cells():
    """Two layers of PyTorch's cells, with a tuple as the state."""

    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([nn.LSTMCell(8, 10), nn.LSTMCell(10, 10)])

        def forward(self, x):
            zeros = torch.zeros(x.size(0), 10)
            states = [(zeros, zeros), (zeros, zeros)]
            out: List[Tensor] = []
            for step in x.unbind(1):
                for i, cell in enumerate(self.cells):
                    states[i] = cell(step, states[i])
                    step = states[i][0]
                out.append(step)
            return torch.stack(out, 1), states

    return Recurrent(), ["float32[B,6,8]"]


@scripted()
def script_lstm():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.lstm = nn.LSTM(8, 10, num_layers=2, batch_first=True)
            self.gru = nn.GRU(10, 6, batch_first=True, bidirectional=True)

        def forward(self, x):
            y, (h, c) = self.lstm(x)
            z, last = self.gru(y)
            return z, h, c, last

    return Recurrent(), ["float32[B,6,8]"]


@scripted()
def script_packed_sequence():
    """Sequences with a length each, stopped one after the other."""

    def forward(self, x, lengths):
        h = torch.zeros(x.size(0), 8)
        for t in range(x.size(1)):
            alive = (lengths > t).unsqueeze(1)
            h = torch.where(alive, torch.tanh(self.fc(x[:, t]) + h), h)
        return h

    return network(forward, fc=nn.Linear(8, 8)), ["float32[B,6,8]", "int64[B]{1:7}"]
