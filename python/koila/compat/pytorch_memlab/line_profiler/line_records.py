"""Figures of lines as text and HTML, after pytorch_memlab by Stonesjtu (MIT)."""

from __future__ import annotations

import html
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from types import CodeType
from typing import Any, NamedTuple

from koila.compat.pytorch_memlab.utils import readable_size

__all__ = [
    "DEFAULT_COLUMNS",
    "Function",
    "LineRecords",
    "RecordsDisplay",
    "find_functions",
    "get_code",
]

#: What is shown unless other columns are asked for, with the increment beside. The CPU
#: reserves nothing: there it is the peak and the increment.
DEFAULT_COLUMNS = ("active_bytes.all.peak", "reserved_bytes.all.peak")
_INCREMENT = "active_bytes.all.increment"
#: Shown beside them where there are predictions.
_COMPARED = tuple(
    f"{how}_bytes.call.{part}"
    for part in ("peak", "increment")
    for how in ("predicted", "measured")
)

#: A function, its qualified name, or several.
Function = Callable[..., Any] | str | Iterable[Callable[..., Any] | str]


def get_code(function: object) -> CodeType | None:
    """The code of what a function, a method or a decorated one runs in the end; of a
    module its ``forward``'s."""
    if isinstance(function, CodeType):
        return function
    for name in ("__func__", "fget", "func"):  # Methods, properties, partial.
        inner = getattr(function, name, None)
        if inner is not None and not inspect.isfunction(function):
            return get_code(inner)
    function = inspect.unwrap(function) if callable(function) else function
    code = getattr(function, "__code__", None)
    if isinstance(code, CodeType):
        return code
    inner = getattr(function, "__func__", None)
    if inner is None and not isinstance(function, type):
        inner = getattr(function, "forward", None)
    return get_code(inner) if inner is not None else None


def find_functions(code: CodeType) -> Iterator[CodeType]:
    """The script itself, and all functions that it defines; what is inside of an
    expression counts in its line."""
    yield code
    for inner in code.co_consts:
        if isinstance(inner, CodeType):
            found = find_functions(inner)
            is_named = not inner.co_name.startswith("<")
            if not is_named or not inner.co_flags & inspect.CO_OPTIMIZED:
                # A class body runs once, as lines of the script do.
                next(found)
            yield from found


class Row(NamedTuple):
    """A line of the source; without figures if it has not run."""

    number: int
    device: str
    figures: tuple[int | None, ...]
    runs: int
    text: str


class Table(NamedTuple):
    """A function's lines."""

    name: str
    called: bool
    rows: list[Row]
    #: What there is to say of the figures, a line each.
    notes: tuple[str, ...] = ()


class LineRecords:
    """Figures of lines, and the functions that they are of.

    ``raw_line_records``: for each line and device one entry with the keys ``code_hash``,
    ``line``, ``device``, ``runs`` and one for each column (in bytes or blocks).
    ``code_infos``: by ``code_hash``, ``func`` (the function or its code),
    ``first_line``, ``name`` unless the function has it, and ``notes`` to show below its
    lines. ``options``: the columns
    there are, where nothing was recorded.
    """

    def __init__(
        self,
        raw_line_records: Sequence[Mapping[str, Any]],
        code_infos: Mapping[int, Mapping[str, Any]],
        options: Sequence[str] = (),
    ) -> None:
        self._raw_line_records = raw_line_records
        self._code_infos = code_infos
        self._options = options

    def display(
        self, func: Function | None = None, columns: Sequence[str] = DEFAULT_COLUMNS
    ) -> RecordsDisplay:
        """The figures of some functions, or of all, to print or to show in a notebook.
        Raises ValueError for columns and functions that there are not, and names those
        that there are."""
        columns = self._get_columns(columns)
        tables = [self._get_table(key, columns) for key in self._get_functions(func)]
        return RecordsDisplay(tables, columns)

    def _get_columns(self, columns: Sequence[str]) -> tuple[str, ...]:
        if isinstance(columns, str):
            columns = (columns,)
        others = ("code_hash", "line", "device", "runs")
        options = dict.fromkeys(self._options)
        for record in self._raw_line_records:
            options.update(dict.fromkeys(name for name in record if name not in others))
        if options and tuple(columns[:2]) == DEFAULT_COLUMNS:
            there = [name for name in DEFAULT_COLUMNS if name in options]
            more = [name for name in (_INCREMENT,) if name in options]
            if any(_COMPARED[0] in record for record in self._raw_line_records):
                more += [name for name in _COMPARED if name in options]
            columns = tuple(dict.fromkeys([*there, *more, *columns[2:]]))
        unknown = [name for name in columns if options and name not in options]
        if unknown:
            raise ValueError(
                f"no column {', '.join(map(repr, unknown))}; there are: {', '.join(options)}"
            )
        return tuple(columns)

    def _get_functions(self, func: Function | None) -> list[int]:
        if func is None:
            return list(self._code_infos)
        asked = [func] if isinstance(func, str) or callable(func) else list(func)
        keys: dict[int, None] = {}
        for one in asked:
            code = None if isinstance(one, str) else get_code(one)
            found = [
                key
                for key, info in self._code_infos.items()
                if (_get_name(info) == one if code is None else get_code(info["func"]) is code)
            ]
            if not found:
                there = ", ".join(_get_name(info) for info in self._code_infos.values())
                raise ValueError(f"{one!r} is not profiled; there are: {there or 'none'}")
            keys.update(dict.fromkeys(found))
        return list(keys)

    def _get_table(self, key: int, columns: Sequence[str]) -> Table:
        info = self._code_infos[key]
        first, lines = _get_source(info)
        records: dict[int, list[Mapping[str, Any]]] = {}
        for record in self._raw_line_records:
            if record["code_hash"] == key:
                records.setdefault(record["line"], []).append(record)
        rows = []
        last = max([first + len(lines) - 1, *records])
        for number in range(first, last + 1):
            text = lines[number - first] if number - first < len(lines) else ""
            for record in records.get(number, [{}]):
                rows.append(
                    Row(
                        number,
                        str(record.get("device", "")),
                        tuple(record.get(column) for column in columns),
                        record.get("runs", 0),
                        text,
                    )
                )
        if not records and not lines:
            rows = []
        return Table(_get_name(info), bool(records), rows, tuple(info.get("notes", ())))


def _get_name(info: Mapping[str, Any]) -> str:
    func = info["func"]
    if "name" in info:
        return str(info["name"])
    return str(getattr(func, "__qualname__", None) or getattr(func, "co_qualname", func))


def _get_source(info: Mapping[str, Any]) -> tuple[int, list[str]]:
    code = get_code(info["func"])
    try:
        if code is not None and code.co_name == "<module>":
            # Of a script getsourcelines() has the first block alone.
            return 1, [line.rstrip() for line in inspect.findsource(code)[0]]
        lines, first = inspect.getsourcelines(code or info["func"])
        return first, [line.rstrip() for line in lines]
    except (OSError, TypeError):
        return info["first_line"], []


def _format(column: str, figure: int | None) -> str:
    if figure is None:
        return ""
    return readable_size(figure) if "bytes" in column else str(figure)


class RecordsDisplay:
    """Text by ``str``, and a page for notebooks: the source, each line the warmer the
    more the first column has."""

    def __init__(self, tables: Sequence[Table], columns: Sequence[str]) -> None:
        self._tables = tables
        self._columns = tuple(columns)
        devices = {row.device for table in tables for row in table.rows if row.device}
        self._shows_devices = len(devices) > 1

    def take_called(self) -> RecordsDisplay:
        """Of the functions that ran."""
        return RecordsDisplay([table for table in self._tables if table.called], self._columns)

    def __repr__(self) -> str:
        parts = [
            "\n".join([f"## {table.name}\n", self._get_text(table), *table.notes, ""])
            for table in self._tables
        ]
        return "\n\n".join(parts) or "No data collected\n"

    def _get_text(self, table: Table) -> str:
        if not table.called:
            return "never called\n"
        heads = [[*column.split("."), "", "", ""][:3] for column in self._columns]
        cells = [
            [
                _format(column, figure)
                for column, figure in zip(self._columns, row.figures, strict=True)
            ]
            for row in table.rows
        ]
        if self._shows_devices:
            heads.append(["device", "", ""])
            cells = [[*line, row.device] for line, row in zip(cells, table.rows, strict=True)]
        heads.append(["line", "", ""])
        cells = [[*line, str(row.number)] for line, row in zip(cells, table.rows, strict=True)]
        widths = [
            max(map(len, [*head, *(line[index] for line in cells)]))
            for index, head in enumerate(heads)
        ]
        out = []
        for level in range(3):
            text = " ".join(head[level].rjust(w) for head, w in zip(heads, widths, strict=True))
            out.append(f"{text}  {'code' if not level else ''}".rstrip())
        for line, row in zip(cells, table.rows, strict=True):
            text = " ".join(cell.rjust(w) for cell, w in zip(line, widths, strict=True))
            out.append(f"{text}  {row.text}".rstrip())
        return "\n".join(out) + "\n"

    def _repr_html_(self) -> str:
        if not self._tables:
            return "<p>No data collected</p>"
        return "\n".join(
            f"<h3>{html.escape(table.name)}</h3>\n{self._get_html(table)}"
            + "".join(f"\n<p>{html.escape(note)}</p>" for note in table.notes)
            for table in self._tables
        )

    def _get_html(self, table: Table) -> str:
        if not table.called:
            return "<p>never called</p>"
        most = [
            max((abs(row.figures[index] or 0) for row in table.rows), default=0)
            for index in range(len(self._columns))
        ]
        names = [*self._columns, *(["device"] if self._shows_devices else []), "line", "code"]
        head = "".join(f"<th>{html.escape(name)}</th>" for name in names)
        body = []
        for row in table.rows:
            cells = [
                f'<td style="text-align:right;{_get_heat(figure, top)}">'
                f"{html.escape(_format(column, figure))}</td>"
                for column, figure, top in zip(self._columns, row.figures, most, strict=True)
            ]
            if self._shows_devices:
                cells.append(f"<td>{html.escape(row.device)}</td>")
            warm = _get_heat(row.figures[0], most[0]) if most else ""
            cells.append(f"<td>{row.number}</td>")
            cells.append(
                f'<td style="text-align:left;white-space:pre;font-family:monospace;{warm}">'
                f"{html.escape(row.text)}</td>"
            )
            body.append(f"<tr>{''.join(cells)}</tr>")
        return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(body)}</tbody></table>"


def _get_heat(figure: int | None, most: int) -> str:
    """A colour by size: red what was added, green what was given back."""
    if not figure or not most:
        return ""
    colour = "214,69,48" if figure > 0 else "46,139,87"
    return f"background-color:rgba({colour},{0.6 * abs(figure) / most:.2f})"
