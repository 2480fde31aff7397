"""A gap excuses what it names, and nothing that is wrong."""

import collections
import dataclasses
from typing import Any

import pytest

from gaps import GAPS, Gap, judge

WHOLE: dict[str, Any] = {
    "name": "p",
    "scripted": False,
    "imported": True,
    "round_trip": True,
    "refused": [],
    "wrong": [],
    "unreported": [],
    "opaque": collections.Counter(),
    "unknown": collections.Counter(),
    "fresh": collections.Counter(),
    "compared": 7,
}
NOTHING: dict[str, Any] = WHOLE | {"imported": False, "round_trip": False, "compared": 0}
SENTENCES = (
    "aten::cat: [B, 3] is [2, 4] at B=2",
    "aten::add.Tensor: f32 is torch.float64",
    "round trip: call[0] has other values at B=2",
    "import: koila-opt died of signal 11",
)
# As generous as an entry can be.
GENEROUS = Gap(
    "all", refused="error", unreported="size", unknown={"aten::cat"}, fresh={"aten::cat"}
)


def test_a_whole_program():
    assert judge(WHOLE, None) == []
    assert judge(WHOLE, Gap("")) == []


@pytest.mark.parametrize("sentence", SENTENCES)
@pytest.mark.parametrize("gap", [None, GENEROUS, *GAPS.values()])
def test_no_gap_excuses_what_is_wrong(sentence, gap):
    seen = {}
    if gap:
        seen = {
            "refused": [gap.refused] * bool(gap.refused),
            "unreported": [gap.unreported] * bool(gap.unreported),
            "unknown": collections.Counter(gap.unknown),
            "fresh": collections.Counter(gap.fresh),
        }
    assert judge(WHOLE | seen, gap) == []
    assert judge(WHOLE | seen | {"wrong": [sentence]}, gap) == [f"wrong: {sentence}"]


def test_a_gap_has_no_field_for_what_is_wrong():
    assert {field.name for field in dataclasses.fields(Gap)} == {
        "why",
        "refused",
        "unreported",
        "unknown",
        "fresh",
    }


@pytest.mark.parametrize("kind", ["unknown", "fresh"])
def test_operators_are_those_of_the_gap(kind):
    fields: dict[str, Any] = {kind: {"aten::cat"}}
    gap = Gap("", **fields)
    report = WHOLE | {kind: collections.Counter({"aten::cat": 2})}
    assert judge(report, gap) == []
    assert judge(report, None)
    assert judge(report, Gap("", refused="cat"))
    (more,) = judge(report | {kind: collections.Counter(["aten::cat", "aten::stack"])}, gap)
    assert more.startswith("aten::stack: ")
    (less,) = judge(WHOLE, gap)
    assert less.startswith("aten::cat: it is no longer so")


def test_unknown_is_not_fresh():
    report = WHOLE | {"unknown": collections.Counter(["aten::cat"])}
    assert len(judge(report, Gap("", fresh={"aten::cat"}))) == 2


def test_an_unreported_batch_is_that_of_the_gap():
    gap = Gap("", unreported="at least 12")
    report = WHOLE | {"unreported": ["expected weight to be at least 12"]}
    assert judge(report, gap) == []
    assert judge(report, None) == ["unreported: expected weight to be at least 12"]
    assert judge(report | {"unreported": ["invalid shape"]}, gap) == ["unreported: invalid shape"]
    assert len(judge(report, Gap("", refused="at least 12"))) == 2


def test_diagnostics_are_those_of_the_gap():
    gap = Gap("", refused="a constant of type complex")
    report = NOTHING | {"refused": ["import: a constant of type complex is not supported"]}
    assert judge(report, gap) == []
    assert judge(report, None) == ["refused: " + report["refused"][0]]
    assert judge(report, Gap("", unknown={"aten::cat"}))
    other = judge(report | {"refused": ["import: out of memory"]}, gap)
    assert other == ["refused: import: out of memory"]
    assert judge(WHOLE, gap) == ["not refused any more: 'a constant of type complex'; mend gaps.py"]


@pytest.mark.parametrize("missing", ["imported", "round_trip", "compared"])
def test_what_was_not_compared_is_wrong(missing):
    assert judge(WHOLE | {missing: 0}, GENEROUS)[0].startswith("wrong: ")


def test_opaque_operators_of_traces_are_no_gap():
    report = WHOLE | {"opaque": collections.Counter(["aten::cat"])}
    assert judge(report, Gap("", unknown={"aten::cat"}))[0] == "opaque: aten::cat"
    assert judge(report | {"scripted": True}, None) == []


@pytest.mark.parametrize("name", GAPS)
def test_every_entry_says_what_and_why(name):
    gap = GAPS[name]
    assert gap.why and (gap.refused or gap.unreported or gap.unknown or gap.fresh)
