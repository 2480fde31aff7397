"""What PyTorch says about every value of a program.

`prepare` makes the graph that koila imports, by the passes of
lib/Target/TorchScript/Import/Graph.cpp; the one without a Python binding is written
out here.
"""

import copy
from typing import ClassVar

import torch


def collect_nodes(block):
    nodes = []
    for node in block.nodes():
        nodes.append(node)
        for inner in node.blocks():
            nodes += collect_nodes(inner)
    return nodes


#: What only reads or names has no number in koila's locations: an archive that is read may
#: have the device of an argument where a trace has a constant.
UNNUMBERED = {"prim::Constant", "prim::GetAttr", "prim::device"}


def number_nodes(nodes):
    return [node for node in nodes if node.kind() not in UNNUMBERED]


def lower_simple_tuples(graph):
    """Reads the parts of a tuple where it is taken apart from where it was
    put together. As LowerSimpleTuples; programs have no tuple constants."""
    for node in collect_nodes(graph):
        if node.kind() not in ("prim::TupleUnpack", "prim::TupleIndex", "prim::TupleSlice"):
            continue
        tuple_node = node.inputsAt(0).node()
        if tuple_node.kind() != "prim::TupleConstruct":
            continue
        parts = list(tuple_node.inputs())
        if node.kind() == "prim::TupleUnpack":
            for output, part in zip(node.outputs(), parts, strict=True):
                output.replaceAllUsesWith(part)
        elif node.kind() == "prim::TupleIndex":
            index = node.inputsAt(1).toIValue()
            if index is None:
                continue
            node.outputsAt(0).replaceAllUsesWith(parts[index])
        else:
            made = graph.create("prim::TupleConstruct", parts[node.i("beg") : node.i("end")], 1)
            made.output().setType(node.output().type())
            made.insertBefore(node)
            node.output().replaceAllUsesWith(made.output())


def prepare(module, method):
    graph = getattr(module, method).graph.copy()
    torch._C._jit_pass_inline(graph)
    lower_simple_tuples(graph)
    torch._C._jit_pass_constant_propagation_immutable_types(graph)  # type: ignore[attr-defined]
    torch._C._jit_pass_constant_pooling(graph)  # type: ignore[attr-defined]
    torch._C._jit_pass_dce_graph(graph)
    return graph


def schema_name(node):
    """`aten::add.Tensor`; the kind alone for what has no schema."""
    schema = node.schema()
    if schema == "(no schema)":
        return node.kind()
    return schema.split("(", 1)[0]


# Nodes whose results are no values of their own in koila's program.
CONTAINERS = {
    "prim::Constant",
    "prim::GetAttr",
    "prim::ListConstruct",
    "prim::TupleConstruct",
    "prim::DictConstruct",
    "prim::ListUnpack",
    "prim::TupleUnpack",
    "prim::TupleIndex",
    "prim::TupleSlice",
    "prim::unchecked_cast",
    "aten::__getitem__",
}


def never_assigned(graph):
    """Values of branches that raise or leave: reading them is an error."""
    found, before = set(), -1

    def spread(block):
        for node in block.nodes():
            for inner in node.blocks():
                spread(inner)
                # The first that a loop returns is its condition.
                for output, value in zip(
                    node.outputs(),
                    list(inner.outputs())[node.kind() == "prim::Loop" :],
                    strict=False,
                ):
                    if value.debugName() in found:
                        found.add(output.debugName())
            if node.kind() == "prim::Uninitialized":
                found.add(node.output().debugName())
            if node.kind() == "prim::Loop":
                for value, parameter, output in zip(
                    list(node.inputs())[2:],
                    list(next(node.blocks()).inputs())[1:],
                    node.outputs(),
                    strict=True,
                ):
                    if {value.debugName(), output.debugName()} & found:
                        found.update((parameter.debugName(), output.debugName()))

    while len(found) != before:
        before = len(found)
        spread(graph)
    return found


class Recorder:
    """Adds to a graph what puts down every tensor, list of tensors and integer
    when it is computed. Lists are copied, and where an operator changes shapes
    in place, tensors are taken as views."""

    KINDS: ClassVar = {"Tensor": "aten::alias", "Tensor[]": "aten::list", "int": None}
    RESHAPING: ClassVar = {
        f"aten::{name}_"
        for name in (
            "unsqueeze",
            "squeeze",
            "transpose",
            "t",
            "swapaxes",
            "swapdims",
            "resize",
            "resize_as",
            "set",
            "as_strided",
        )
    }
    # Known without a run, or no value of the type that they say.
    NOTHING: ClassVar = {
        "prim::Uninitialized",
        "prim::Enter",
        "prim::Exit",
    }

    def __init__(self, graph):
        self.graph, self.places, self.lists = graph, [], {}
        unknown = never_assigned(graph)
        nodes = collect_nodes(graph)
        # Not always: a tensor may be undefined, which has no view.
        self.view = any(
            node.kind() in self.RESHAPING or "(a!)" in node.schema().partition(", *, ")[2]
            for node in nodes
        )
        for name in (*self.KINDS, "order"):
            made = graph.create("prim::ListConstruct", [], 1)
            made.output().setType(torch._C.ListType(self.type_of(name)))
            graph.prependNode(made)
            self.lists[name] = made.output()
        for index, node in enumerate(number_nodes(nodes)):
            if node.kind() in self.NOTHING:
                continue
            for number, output in enumerate(node.outputs()):
                kind = str(output.type())
                if kind in self.KINDS and output.debugName() not in unknown:
                    self.record(index, node, number, output, kind)
        for _ in list(graph.outputs()):
            graph.eraseOutput(0)
        for value in self.lists.values():
            graph.registerOutput(value)
        graph.makeMultiOutputIntoTuple()

    @staticmethod
    def type_of(name):
        if name == "Tensor[]":
            return torch._C.ListType(torch._C.TensorType.get())
        return torch._C.TensorType.get() if name == "Tensor" else torch._C.IntType.get()

    def record(self, index, node, number, output, kind):
        last = node

        def add(name, inputs, result):
            nonlocal last
            made = self.graph.create(name, inputs, 1)
            made.output().setType(result)
            made.insertAfter(last)
            last = made
            return made

        value = output
        if self.KINDS[kind] and (self.view or kind != "Tensor"):
            value = add(self.KINDS[kind], [output], self.type_of(kind)).output()
        place = add("prim::Constant", [], torch._C.IntType.get())
        place.i_("value", len(self.places))
        for name, what in ((kind, value), ("order", place.output())):
            add("aten::append", [self.lists[name], what], self.lists[name].type())
        self.places.append((index, number, kind))

    def read(self, results):
        """(node, result, value) in the order in which they were computed."""
        values = dict(zip(self.lists, map(iter, results), strict=True))
        trace = []
        for place in values.pop("order"):
            index, number, kind = self.places[place]
            value = next(values[kind])
            if value is not None:
                trace.append((index, number, value))
        return trace


class Truth:
    """Runs a method and keeps what it computes on the way."""

    def __init__(self, module, method="forward"):
        self.module = module
        graph = prepare(module, method)
        nodes = collect_nodes(graph)
        self.all_names = [schema_name(node) for node in nodes]
        self.nodes = number_nodes(nodes)
        self.names = [schema_name(node) for node in self.nodes]
        self.recorder = Recorder(graph)
        self.function = torch._C._create_function_from_graph(method, graph)
        # Which this function does not have.
        schema = module._c._get_method(method).schema
        self.defaults = [argument.default_value for argument in schema.arguments[1:]]

    def run(self, inputs):
        torch.manual_seed(0)
        inputs = [*inputs, *self.defaults[len(inputs) :]]
        try:
            # The next run starts from the same state.
            module = copy.deepcopy(self.module._c)
        except RuntimeError:
            # There is nothing that copies a complex attribute.
            module = self.module._c
        with torch.no_grad():
            return self.recorder.read(self.function(module, *inputs))
