"""What is to be said of an application that ran with koila.

    found = judge(outcome, plain, script)     # {"silent": ["line 20: ..."], ...}

Nothing found is right. Else, the worst first:

``crashed``   an exception that the application does not expect, or its process ended
``wrong``     something that the user can see differs, or is not what was promised
``silent``    a part took more than its budget, and nobody was told
``refused``   koila raised an error of its own, or told that it is over the budget
              where tiles can do it
``keeps``     memory stays behind
"""

from __future__ import annotations

import pathlib
from collections.abc import Callable

from applications_app import Outcome
from compare import compare
from judge import KEPT_PART, SLACK, mib

WORDS = ("crashed", "wrong", "silent", "refused", "keeps")
# Of a result, in norm: tiles add up in another order. The controls are a
# thousandth off.
_FLOOR = 2e-5
_HALF_FLOOR = 2.0**-8

Found = dict[str, list[str]]
Note = Callable[[str, str], None]


def judge(outcome: Outcome, plain: Outcome | None, script: pathlib.Path) -> Found:
    """``plain`` is None for what has no counterpart in plain PyTorch."""
    found: Found = {}

    def note(word: str, reason: str) -> None:
        found.setdefault(word, []).append(reason)

    for word, reason in outcome.failures:
        note(word, reason)
    if outcome.raised is not None:
        note("refused" if outcome.raised.refusal else "crashed", str(outcome.raised))
    _judge_parts(outcome, note)
    for text, file, line in outcome.warned:
        # A cell of a notebook is no file.
        if not file.startswith((str(script.parent), "<")):
            note("wrong", f"a warning names {file}:{line} and not the application: {text}")
    if plain is not None and outcome.leaves and plain.leaves:
        floor = _HALF_FLOOR if "bfloat16" in script.read_text() else _FLOOR
        for difference in compare(outcome.leaves, plain.leaves, [], floor):
            note("wrong", difference)
        _judge_kept(outcome, plain, note)
    return {word: found[word] for word in WORDS if word in found}


def _judge_parts(outcome: Outcome, note: Note) -> None:
    for part in outcome.parts:
        more = part.used - part.budget
        if more <= SLACK:
            continue
        text = f"line {part.line} takes {mib(part.used)}, {mib(more)} more than its budget"
        if not part.excused:
            note("silent", text)
        elif part.strict:
            note("refused", f"{text}, as it says; tiles can do it")


def _judge_kept(outcome: Outcome, plain: Outcome, note: Note) -> None:
    if len(outcome.parts) != len(plain.parts):
        note("wrong", f"{len(outcome.parts)} parts, in plain PyTorch {len(plain.parts)}")
        return
    allowed = SLACK + KEPT_PART * max((part.used for part in plain.parts), default=0)
    for part, wanted in zip(outcome.parts, plain.parts, strict=True):
        kept = (part.end - part.start) - (wanted.end - wanted.start)
        if kept > allowed:
            note("keeps", f"line {part.line} keeps {mib(kept)} at its end")
    kept = outcome.alive - plain.alive
    if kept > allowed:
        note("keeps", f"{mib(kept)} are alive when all is gone")
