"""The figures of tools/demo.sh.

Usage: demo_report.py budget REPORT.json
       demo_report.py table RUN.json BUDGET MODEL INPUT BATCH TILED.pt

`budget` prints a fifth of the untiled peak; `table` prints what was predicted
and measured, and exits with 1 if results differ or the budget is not kept.
"""

import json
import sys
import zipfile

UNITS = {"KiB": 1 << 10, "MiB": 1 << 20}


def budget(path):
    with open(path) as file:
        peak = json.load(file)["peak_bytes"]
    unit = "MiB" if peak >= 5 * UNITS["MiB"] else "KiB"
    print(f"{peak // 5 // UNITS[unit]}{unit}")


def size(count):
    for name, unit in reversed(UNITS.items()):
        if count >= unit:
            return f"{count / unit:.2f} {name}"
    return f"{count} B"


def tile_of(path):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith("koila/report.json"):
                promise = json.loads(archive.read(name)).get("promise")
                return str(promise["tile"]) if promise else "-"
    return "-"


def table(path, budget_text, model, spec, batch, tiled):
    with open(path) as file:
        run = json.load(file)
    limit = int(budget_text[:-3]) * UNITS[budget_text[-3:]]
    rows = [("", "predicted peak", "measured peak", "off", "tile", "time")]
    for name, tile, program in zip(
        ("untiled", "tiled"), ("-", tile_of(tiled)), run["programs"], strict=False
    ):
        predicted = program["predicted_peak_bytes"]
        measured = program["measured_peak_bytes"]
        off = "?" if predicted is None else f"{predicted - measured} B"
        rows.append(
            (
                name,
                "?" if predicted is None else size(predicted),
                size(measured),
                off,
                tile,
                f"{program['time_ms']:.0f} ms",
            )
        )
    print(f"\n{model}, input {spec}, B = {batch}, CPU; budget {budget_text}\n")
    widths = [max(map(len, column)) for column in zip(*rows, strict=False)]
    for row in rows:
        cells = [
            cell.ljust(width) if index == 0 else cell.rjust(width)
            for index, (cell, width) in enumerate(zip(row, widths, strict=False))
        ]
        print("  " + "  ".join(cells))
    compare = run["compare"]
    kept = run["programs"][1]["measured_peak_bytes"] <= limit
    print(
        f"\n  results: {'equal' if compare['equal'] else 'NOT EQUAL'} "
        f"(largest difference {compare['max_abs']:.2g})"
    )
    print(f"  measured peak within the budget: {'yes' if kept else 'NO'}")
    return 0 if compare["equal"] and kept else 1


if __name__ == "__main__":
    if sys.argv[1] == "budget":
        budget(sys.argv[2])
    else:
        sys.exit(table(*sys.argv[2:]))
