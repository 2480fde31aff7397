"""What the programs of the corpus miss, program by program, and the judgement of
what was seen of one.

A program may be refused, a trace-specialised batch may go unreported, a shape may be
unknown, and an extent may have a symbol of its own. An entry names which of
these it excuses and where; more than that is an error, and so is less. What is wrong
(an extent, a dtype, a value, a file that differs) is in none of the fields, so that
no entry excuses it.
"""

import dataclasses
from collections.abc import Set


@dataclasses.dataclass(frozen=True)
class Gap:
    why: str
    # A part of each diagnostic with which koila refuses the program.
    refused: str = ""
    # A part of what PyTorch raises at batches other than the traced one, where
    # koila does not say that the program holds for that batch alone.
    unreported: str = ""
    # Operators with a result that has no rank, extent or element type.
    unknown: Set[str] = frozenset()
    # Operators with an extent that has a symbol of its own, though it follows
    # from the batch.
    fresh: Set[str] = frozenset()


def count_missing(report):
    """What keeps a program from being whole, beside what is wrong."""
    # Operations stand for all operators of traced programs.
    kinds = ["refused", "unreported", "unknown", "fresh"] + ["opaque"] * (not report["scripted"])
    return sum(len(report[kind]) for kind in kinds)


def judge_texts(what, seen, expected):
    """Of sentences, each of which has to have the expected part."""
    for text in seen:
        if not expected or expected not in text:
            yield f"{what}: {text}"
    if expected and not seen:
        yield f"not {what} any more: '{expected}'; mend gaps.py"


def judge_operators(what, seen, expected):
    for operator in sorted(seen - expected):
        yield f"{operator}: {what}"
    for operator in sorted(expected - seen):
        yield f"{operator}: it is no longer so that {what}; mend gaps.py"


def judge(report, gap):
    """Sentences about what is not as expected; `gap` is an entry or None."""
    problems = [f"wrong: {sentence}" for sentence in report["wrong"]]
    # Data may leave all extents of a program open.
    compared = report.get("compared") or report.get("left_open")
    complete = report["imported"] and report["round_trip"] and compared
    if not complete and not report["wrong"] and not report["refused"]:
        problems.append("wrong: neither refused nor compared")
    if not report["scripted"]:
        problems += [f"opaque: {operator}" for operator in report["opaque"]]
    gap = gap or Gap("")
    return [
        *problems,
        *judge_texts("refused", report["refused"], gap.refused),
        *judge_texts("unreported", report["unreported"], gap.unreported),
        *judge_operators("a shape is unknown", set(report["unknown"]), gap.unknown),
        *judge_operators("an extent has a symbol of its own", set(report["fresh"]), gap.fresh),
    ]


GAPS = {
    "hand_list_input": Gap(
        "a list of tensors as an argument of a traced program",
        refused="cannot be loaded: Expected Tensor but got GenericList",
    ),
    "hand_custom_operator": Gap(
        "LibTorch reads no file with an operator that no library declares",
        refused="uses the custom operator 'koila_corpus::double_it'",
    ),
    "hand_dlrm": Gap(
        "one extent of embedding_bag depends on the kernel it takes",
        fresh={"aten::embedding_bag.padding_idx"},
    ),
    "hf_mixtral": Gap(
        "extents that follow from data-dependent ones",
        fresh={"aten::mul.Tensor", "aten::to.dtype"},
    ),
    "hand_dynamic_filters": Gap(
        "literal groups of a batch that is folded into the channels",
        unreported="Given groups=12, expected weight to be at least 12",
    ),
}

# Scripted programs. All are read and written back as they were, or refused; what is
# missing are shapes.
LIST = "what comes out of a list that grows in a loop, or that changes"
ELEMENT = "elements of containers that a loop carries or a branch merges"
DICT = "elements of a dict that changes"
WRITTEN = "what is read from attributes that the program writes"
OBJECT = "fields of objects of a class"
COUNTER = "an extent made of a loop counter"
TYPES = "a value of several types"
UNION = "a --input of type Union"
SWIN = {
    "aten::add.Tensor",
    "aten::contiguous",
    "aten::dropout",
    "aten::index.Tensor",
    "aten::permute",
    "aten::softmax.int",
    "aten::unsqueeze",
    "aten::view",
    "scf.if",
}

GAPS |= {
    "script_list_stack": Gap(COUNTER, fresh={"aten::slice.Tensor"}),
    "script_list_of_batch": Gap(COUNTER, unknown={"aten::cat"}, fresh={"aten::slice.Tensor"}),
    "script_list_slices": Gap(LIST, fresh={"aten::stack"}),
    "script_list_of_lists": Gap(LIST, unknown={"aten::cat"}, fresh={"aten::stack"}),
    "script_list_input": Gap(
        LIST,
        unknown={
            "aten::__getitem__.t",
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "aten::stack",
            "koila.element",
            "scf.for",
        },
    ),
    "script_tolist": Gap(
        "data decide how many numbers a list has",
        unknown={"aten::add.Scalar", "aten::add.Tensor", "aten::tensor"},
    ),
    "script_item": Gap("an extent made of a number that data decide", fresh={"aten::slice.Tensor"}),
    "script_named_tuple": Gap(
        ELEMENT,
        unknown={
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "aten::unsqueeze",
            "koila.element",
            "scf.for",
        },
    ),
    "script_dict_methods": Gap(
        DICT,
        unknown={
            "aten::__getitem__.Dict_str",
            "aten::__getitem__.t",
            "aten::add.Scalar",
            "aten::add.Tensor",
            "aten::get.default_str",
            "aten::mul.Scalar",
            "aten::pop.Dict_str",
            "aten::setdefault.str",
            "aten::sin",
            "aten::sub.Tensor",
            "koila.element",
            "koila.unpack",
            "scf.for",
            "scf.if",
        },
    ),
    "script_dict_numbers": Gap(DICT, unknown={"aten::stack", "koila.element"}),
    "script_dict_input": Gap(
        "the dict of arguments is unpacked by a call",
        unknown={
            "aten::add.Scalar",
            "aten::linear",
            "aten::mul.Scalar",
            "koila.element",
            "koila.unpack",
        },
    ),
    "script_dict_of_lists": Gap(LIST, unknown={"aten::stack"}),
    "script_union": Gap(
        TYPES,
        unknown={
            "aten::add.Scalar",
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "koila.unchecked_cast",
            "scf.for",
            "scf.if",
        },
    ),
    "script_enum": Gap("an enum as a constant", refused="Mode is not supported yet"),
    "script_complex_numbers": Gap(
        "complex numbers as constants", refused="a constant of type complex is not supported yet"
    ),
    "script_scalar_types": Gap(UNION, refused="is no Union[float, int]"),
    "script_if_type": Gap(UNION, refused="is no Union[float, int, NoneType]"),
    "script_for_steps": Gap(COUNTER, fresh={"aten::slice.Tensor"}),
    "script_for_zip_enumerate": Gap(LIST, fresh={"aten::cat"}),
    "script_break_continue": Gap(COUNTER, fresh={"aten::slice.Tensor"}),
    "script_beam_search": Gap(LIST, fresh={"aten::stack"}),
    "script_gradient": Gap(
        "torch.autograd.grad, which gives optional tensors",
        unknown={"aten::mul.Scalar", "aten::sub.Tensor", "koila.unchecked_cast", "scf.if"},
    ),
    "script_extent_arithmetic": Gap(
        LIST,
        unknown={"aten::reshape", "aten::sum.dim_IntList"},
        fresh={
            "aten::mul.Tensor",
            "aten::new_ones",
            "aten::reshape",
            "aten::transpose.int",
            "aten::view",
        },
    ),
    "script_class": Gap(
        OBJECT, unknown={"aten::add.Tensor", "aten::mul.Scalar", "aten::sin", "prim::GetAttr"}
    ),
    "script_class_in_loop": Gap(
        OBJECT,
        unknown={"aten::add.Scalar", "aten::add.Tensor", "aten::mul.Scalar", "prim::GetAttr"},
    ),
    "script_class_operators": Gap(
        OBJECT,
        unknown={
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "aten::mul.Tensor",
            "aten::neg",
            "aten::reciprocal",
            "aten::select.int",
            "aten::slice.Tensor",
            "prim::GetAttr",
            "scf.if",
        },
    ),
    "script_class_list": Gap(
        OBJECT,
        unknown={"aten::add.Tensor", "aten::mul.Scalar", "aten::tanh", "prim::GetAttr", "scf.for"},
    ),
    "script_attributes": Gap(
        "an attribute that is a complex number", unknown={"aten::imag", "aten::mul.Scalar"}
    ),
    "script_attribute_tensors": Gap(
        "a list of tensors as an attribute",
        unknown={
            "aten::__getitem__.t",
            "aten::add.Tensor",
            "aten::matmul",
            "aten::mul.Scalar",
            "aten::sin",
            "koila.element",
            "scf.for",
        },
    ),
    "script_constants": Gap(
        "a tuple constant that a loop walks through",
        unknown={
            "aten::__and__.Tensor",
            "aten::add.Tensor",
            "aten::gt.Scalar",
            "aten::mul.Scalar",
            "aten::pad",
            "aten::tensor",
            "scf.for",
        },
    ),
    "script_interface_index": Gap(
        "which module an interface is, a number decides",
        unknown={"aten::add.Scalar", "prim::CallMethod", "scf.for"},
    ),
    "script_interface_attribute": Gap(
        "a call through an interface", unknown={"aten::add.Scalar", "prim::CallMethod"}
    ),
    "script_export_state": Gap(
        WRITTEN,
        unknown={
            "aten::add.Scalar",
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "aten::mul.Tensor",
            "prim::GetAttr",
        },
    ),
    "script_fork": Gap("torch.jit.fork", refused="'prim::fork' is not supported yet"),
    "script_set_state": Gap(
        "code that runs when the file is read is refused unless asked for",
        refused="has a __setstate__ method",
    ),
    "script_lstm_cells": Gap(
        ELEMENT,
        unknown={
            "aten::lstm_cell",
            "aten::squeeze.dim",
            "aten::stack",
            "aten::unsqueeze",
            "aten::zeros",
            "koila.element",
            "koila.unpack",
            "scf.if",
        },
    ),
    "script_view_carried": Gap(
        COUNTER, fresh={"aten::add_.Scalar", "aten::slice.Tensor", "prim::Loop"}
    ),
    "script_shape_in_place": Gap(
        "an argument loses a dim in place, also for the caller",
        refused="'aten::squeeze_.dim' changes the dims of a tensor in place that is used elsewhere",
    ),
    "script_out": Gap(
        "out= gives tensors new extents",
        unknown={
            "aten::add.Scalar_out",
            "aten::cat.out",
            "aten::mm.out",
            "aten::mul.Scalar",
            "aten::mul.out",
            "aten::slice.Tensor",
            "aten::topk.values",
        },
    ),
    "script_write_list_element": Gap(
        LIST,
        unknown={
            "aten::__getitem__.t",
            "aten::add.Scalar",
            "aten::add.Tensor",
            "aten::copy",
            "aten::mul.Scalar",
            "aten::mul.Tensor",
            "aten::select.int",
            "aten::slice.Tensor",
            "aten::stack",
            "aten::sub.Scalar",
            "aten::sum",
            "aten::tensor.int",
            "aten::zero",
            "koila.element",
        },
    ),
    "script_write_buffer": Gap(
        WRITTEN, unknown={"aten::add.Scalar", "aten::add.Tensor", "aten::to.dtype", "prim::GetAttr"}
    ),
    "script_set_tensor": Gap(
        WRITTEN,
        unknown={
            "aten::add.Scalar",
            "aten::add.Tensor",
            "aten::mul.Scalar",
            "aten::mul.Tensor",
            "prim::GetAttr",
        },
    ),
    "script_state_containers": Gap(
        WRITTEN,
        unknown={
            "aten::__getitem__.t",
            "aten::add.Tensor",
            "aten::pop.t",
            "koila.element",
            "scf.for",
        },
    ),
    "script_state_in_branch": Gap(
        WRITTEN,
        unknown={
            "aten::add.Scalar",
            "aten::any",
            "aten::div.Tensor",
            "aten::gt.Tensor",
            "aten::maximum",
            "aten::sub.Tensor",
            "prim::GetAttr",
            "scf.if",
        },
    ),
    "script_tv_swin": Gap(LIST, unknown=SWIN, fresh={"aten::slice.Tensor", "aten::view"}),
    "script_tv_swin_padded": Gap(LIST, unknown=SWIN, fresh={"aten::slice.Tensor", "aten::view"}),
    "script_tv_swin_v2": Gap(
        LIST,
        unknown=SWIN | {"aten::mul.Scalar", "aten::sigmoid"},
        fresh={"aten::slice.Tensor", "aten::view"},
    ),
    "script_timm_levit": Gap(
        LIST,
        unknown={
            "aten::__getitem__.Dict_str",
            "aten::add.Tensor",
            "aten::hardswish",
            "aten::index.Tensor",
            "aten::matmul",
            "aten::reshape",
            "aten::softmax.int",
            "aten::transpose.int",
        },
        fresh={"aten::reshape"},
    ),
    "script_timm_efficientformer": Gap(
        "a dict of tensors as an attribute",
        unknown={
            "aten::__getitem__.Dict_str",
            "aten::add.Tensor",
            "aten::index.Tensor",
            "aten::matmul",
            "aten::reshape",
            "aten::softmax.int",
            "aten::transpose.int",
        },
    ),
    "script_seq2seq": Gap(
        "an extent out of a list of sizes whose length is read, too",
        unknown={
            "aten::permute",
            "aten::reshape",
            "aten::scaled_dot_product_attention",
            "aten::unsqueeze",
            "koila.unchecked_cast",
            "koila.upcast",
            "scf.if",
        },
        fresh={"aten::full"},
    ),
}
