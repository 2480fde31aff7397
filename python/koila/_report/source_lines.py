"""The source of a program with the bytes of each line, as HTML."""

from __future__ import annotations

import html
import linecache
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from koila.memory import format_bytes

__all__ = ["make_heat_map"]

# Of a long file, what is shown around lines with bytes.
_WHOLE, _AROUND = 300, 8


def make_heat_map(data: Mapping[str, Any]) -> str:
    """A table for each file: its lines, with the bytes that are alive at the peak of what
    the line made, and all that it made. Where the source cannot be read it says so."""
    held = _sum_by_line(data["live_at_peak"])
    made = _sum_by_line(data["storages"])
    # Those of the peak first.
    files = dict.fromkeys([*held, *made])
    order = sorted(files, key=lambda file: -sum(held.get(file, {}).values()))
    most = max([1, *(size for lines in held.values() for size in lines.values())])
    parts = [
        f"<h3>{html.escape(file)}</h3>\n"
        + _make_table(file, held.get(file, {}), made.get(file, {}), most)
        for file in order
    ]
    return "\n".join(parts) or "<p>No place in a source is known.</p>"


def _sum_by_line(tensors: Iterable[Mapping[str, Any]]) -> dict[str, dict[int, int]]:
    found: dict[str, dict[int, int]] = defaultdict(lambda: defaultdict(int))
    for tensor in tensors:
        place = tensor["location"]
        if place and place.get("file"):
            found[str(place["file"])][int(place["line"])] += int(tensor["bytes"])
    return found


def _make_table(file: str, held: Mapping[int, int], made: Mapping[int, int], most: int) -> str:
    lines = _read(file)
    used = sorted({*held, *made})
    note = ""
    if not lines:
        note = "The source cannot be read here."
    elif used[-1] > len(lines):
        note = f"The source has {len(lines)} lines, and is not the one that was analysed."
    if note:
        lines = []
    rows = []
    before = 0
    for number in _choose(used, len(lines)) if lines else used:
        if lines and number != before + 1:
            rows.append("<tr><td colspan='4'>…</td></tr>")
        before = number
        text = html.escape(lines[number - 1].rstrip()) if lines else ""
        heat = f" style='{_get_heat(held[number], most)}'" if number in held else ""
        rows.append(
            f"<tr{heat}><td class='bytes'>{_show(held.get(number))}</td>"
            f"<td class='bytes'>{_show(made.get(number))}</td>"
            f"<td class='bytes'>{number}</td><td class='code'>{text}</td></tr>"
        )
    head = "<tr><th class='bytes'>at the peak</th><th class='bytes'>made</th>"
    head += "<th class='bytes'>line</th><th>source</th></tr>"
    said = f"<p class='unread'>{note}</p>\n" if note else ""
    body = "".join(rows)
    return f"{said}<div class='scroll'><table class='source'>{head}{body}</table></div>"


def _read(file: str) -> list[str]:
    """Only sources of Python: the report may be somebody else's, and the page, too."""
    if not file.endswith(".py") and file not in linecache.cache:
        return []
    linecache.checkcache(file)
    return linecache.getlines(file)


def _choose(used: list[int], count: int) -> Iterator[int]:
    for number in range(1, count + 1):
        if count <= _WHOLE or any(abs(number - line) <= _AROUND for line in used):
            yield number


def _show(count: int | None) -> str:
    if count is None:
        return ""
    return f"<span title='{count:,} bytes'>{format_bytes(count)}</span>"


def _get_heat(count: int, most: int) -> str:
    return f"background-color:rgba(214,69,48,{0.05 + 0.55 * count / most:.2f})"
