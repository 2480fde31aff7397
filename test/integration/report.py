"""What was found, in words.

    line(report)              one line: verdicts at each budget
    details(report, verbose)  why what is not right is not, with its place
    summary(reports, budgets) counts, and whether each meets the bar

The bar is written here.
"""

from __future__ import annotations

from collections.abc import Iterator

from judge import Verdict, mib
from study import Report

# Of the scripts that tiles can do.
BAR = 0.95
# Of one verdict, without --verbose.
MOST_REASONS = 4
# Of one reason: a BudgetError lists what is live.
MOST_LETTERS = 400


def line(report: Report) -> str:
    kind = "tiles" if report.tileable else "whole"
    verdicts = "  ".join(f"{name} {_word(found)}" for name, found in report.verdicts.items())
    koila = sum(found.seconds for found in report.verdicts.values())
    good = "" if report.is_good() else "  NOT GOOD"
    return (
        f"{report.name:<40} {kind}  need {mib(report.need):>10}  {verdicts}{good}"
        f"  ({report.seconds:.2f} s, koila {koila:.1f} s)"
    )


def _word(found: Verdict) -> str:
    flags = [f"tiles of {'/'.join(map(str, found.tiles))}"] if found.tiles else []
    flags += ["keeps"] * bool(found.keeps)
    flags += ["false warning"] * found.false_warning
    flags += ["warning without the line"] * found.unlocated
    return found.verdict + (f" ({', '.join(flags)})" if flags else "")


def details(report: Report, verbose: bool) -> Iterator[str]:
    for text in _details(report, verbose):
        yield text if len(text) <= MOST_LETTERS else text[:MOST_LETTERS] + "..."


def _details(report: Report, verbose: bool) -> Iterator[str]:
    for text in report.complaints:
        yield f"script: {text}"
    for text in report.missed:
        yield f"control: {text}"
    for name, found in report.verdicts.items():
        shown = found.reasons if verbose else found.reasons[:MOST_REASONS]
        for text in shown:
            yield f"{name}: {text}"
        if len(shown) < len(found.reasons):
            yield f"{name}: and {len(found.reasons) - len(shown)} more, see --verbose"
        if verbose or (found.verdict == "announced" and report.tileable):
            for text in found.warned:
                yield f"{name}: warned in {text}"
    if verbose:
        for index, (start, peak, end) in enumerate(report.windows):
            yield f"plain window {index}: from {mib(start)} to {mib(end)}, peak {mib(peak)}"


def summary(reports: list[Report], budgets: list[str]) -> Iterator[tuple[str, bool]]:
    tileable = [report for report in reports if report.tileable]
    yield f"{len(reports)} scripts, {len(tileable)} of which tiles can do", bool(reports)
    for name in budgets:
        right = sum(
            name in report.verdicts and report.verdicts[name].verdict == "right"
            for report in tileable
        )
        share = right / len(tileable) if tileable else 1.0
        yield f"{name}: {right} of {len(tileable)} right and within ({share:.0%})", share >= BAR
    found = [verdict for report in reports for verdict in report.verdicts.values()]
    for word in ("wrong", "silent", "refused", "crashed"):
        count = sum(verdict.verdict == word for verdict in found)
        yield f"{word}: {count}", not count
    for text, counted in (
        ("keeps", [verdict for verdict in found if verdict.keeps]),
        ("false warnings", [verdict for verdict in found if verdict.false_warning]),
        ("warnings without the line", [verdict for verdict in found if verdict.unlocated]),
        ("controls missed", [text for report in reports for text in report.missed]),
        ("scripts unfit", [report for report in reports if report.complaints]),
    ):
        yield f"{text}: {len(counted)}", not counted
