"""What PyTorch says about every value of a program.

`prepare` makes the graph that koila imports, by the passes of
lib/Target/TorchScript/Graph.cpp; the one without a Python binding is written
out here.
"""

import torch


def lower_simple_tuples(graph):
    """Reads the parts of a tuple where it is taken apart from where it was
    put together. As LowerSimpleTuples; traces have no tuple constants."""
    for node in list(graph.nodes()):
        if node.kind() not in ("prim::TupleUnpack", "prim::TupleIndex"):
            continue
        tuple_node = node.inputsAt(0).node()
        if tuple_node.kind() != "prim::TupleConstruct":
            continue
        parts = list(tuple_node.inputs())
        if node.kind() == "prim::TupleUnpack":
            for output, part in zip(node.outputs(), parts, strict=True):
                output.replaceAllUsesWith(part)
        else:
            index = node.inputsAt(1).toIValue()
            if index is None:
                continue
            node.outputsAt(0).replaceAllUsesWith(parts[index])


def prepare(module):
    graph = module.forward.graph.copy()
    torch._C._jit_pass_inline(graph)
    lower_simple_tuples(graph)
    torch._C._jit_pass_constant_propagation_immutable_types(graph)
    torch._C._jit_pass_constant_pooling(graph)
    torch._C._jit_pass_dce_graph(graph)
    return graph


def collect_nodes(block):
    nodes = []
    for node in block.nodes():
        nodes.append(node)
        for inner in node.blocks():
            nodes += collect_nodes(inner)
    return nodes


def schema_name(node):
    """`aten::add.Tensor`; the kind alone for what has no schema."""
    schema = node.schema()
    if schema == "(no schema)":
        return node.kind()
    return schema.split("(", 1)[0]


# Nodes whose results are no values of their own in koila's program.
CONTAINERS = {
    "prim::Constant", "prim::GetAttr", "prim::ListConstruct",
    "prim::TupleConstruct", "prim::DictConstruct", "prim::ListUnpack",
    "prim::TupleUnpack", "prim::TupleIndex", "prim::TupleSlice",
    "prim::unchecked_cast", "aten::__getitem__",
}


class Truth:
    """Runs a program with every tensor, list of tensors and integer as a
    result, and keeps shapes, types and numbers."""

    def __init__(self, module):
        self.module = module
        graph = prepare(module)
        self.nodes = collect_nodes(graph)
        self.names = [schema_name(node) for node in self.nodes]
        self.places = []
        for _ in list(graph.outputs()):
            graph.eraseOutput(0)
        for index, node in enumerate(self.nodes):
            if node.kind() in ("prim::Constant", "prim::GetAttr"):
                continue
            for number, output in enumerate(node.outputs()):
                if str(output.type()) in ("Tensor", "Tensor[]", "int"):
                    graph.registerOutput(output)
                    self.places.append((index, number))
        graph.makeMultiOutputIntoTuple()
        self.function = torch._C._create_function_from_graph("forward", graph)

    def run(self, inputs):
        """(node, result) -> a tensor, a list of tensors or an integer."""
        torch.manual_seed(0)
        with torch.no_grad():
            values = self.function(self.module._c, *inputs)
        return dict(zip(self.places, values, strict=True))
