"""Draws the memory timelines of two reports, before and after, as an SVG.

Usage: draw_timeline.py BEFORE.json AFTER.(json|pt) BUDGET_BYTES OUT.svg

A report of an archive is the one that koila stored in it.
"""

import json
import sys
import zipfile

WIDTH, HEIGHT = 760, 300
LEFT, RIGHT, TOP, BOTTOM = 64, 16, 40, 44
GAP = 24
STYLE = (
    "text { font: 12px sans-serif; fill: #333 } .title { font-size: 13px; "
    "font-weight: bold } .axis { stroke: #888; fill: none } .live { "
    "fill: #4878a8 } .inside { fill: #e0a040 } .budget { stroke: #c03030; "
    "stroke-dasharray: 5 3 } .budget-text { fill: #c03030 }"
)


def load(path):
    if path.endswith(".pt"):
        with zipfile.ZipFile(path) as archive:
            [name] = [name for name in archive.namelist() if name.endswith("/koila/report.json")]
            return json.loads(archive.read(name))
    with open(path) as file:
        return json.load(file)


def mib(count):
    return f"{count / (1 << 20):.1f} MiB"


def panel(report, title, x, width, scale, bottom):
    steps = report["timeline"]
    step = width / len(steps)
    parts = [
        f'<text class="title" x="{x}" y="{TOP - 16}">{title}: {mib(report["peak_bytes"])}</text>'
    ]
    for index, entry in enumerate(steps):
        live = entry["live_bytes"] * scale
        inside = entry["transient_bytes"] * scale
        left = x + index * step
        for kind, base, height in (("live", bottom, live), ("inside", bottom - live, inside)):
            if height > 0.05:
                parts.append(
                    f'<rect class="{kind}" x="{left:.1f}" '
                    f'y="{base - height:.1f}" width="{step + 0.2:.1f}" '
                    f'height="{height:.1f}"/>'
                )
    parts.append(f'<path class="axis" d="M{x} {bottom}h{width:.1f}"/>')
    parts.append(f'<text x="{x}" y="{bottom + 16}">operations, in order</text>')
    return parts


def main():
    before, after = load(sys.argv[1]), load(sys.argv[2])
    budget, output = int(sys.argv[3]), sys.argv[4]
    bottom = HEIGHT - BOTTOM
    scale = (bottom - TOP) / before["peak_bytes"]
    width = (WIDTH - LEFT - RIGHT - GAP) / 2
    right = LEFT + width + GAP

    parts = panel(before, "before", LEFT, width, scale, bottom)
    parts += panel(after, "after (one tile)", right, width, scale, bottom)
    y = bottom - budget * scale
    parts.append(f'<path class="budget" d="M{LEFT} {y:.1f}H{WIDTH - RIGHT}"/>')
    parts.append(
        f'<text class="budget-text" x="{right + 4:.1f}" y="{y - 5:.1f}">budget {mib(budget)}</text>'
    )
    for share in (0, 0.5, 1):
        value = before["peak_bytes"] * share
        parts.append(
            f'<text text-anchor="end" x="{LEFT - 6}" '
            f'y="{bottom - value * scale + 4:.1f}">'
            f"{value / (1 << 20):.0f} MiB</text>"
        )
    parts.append(f'<path class="axis" d="M{LEFT} {TOP}V{bottom}"/>')
    legend = HEIGHT - 10
    parts.append(
        f'<rect class="live" x="{LEFT}" y="{legend - 9}" width="10" '
        f'height="10"/><text x="{LEFT + 16}" y="{legend}">live '
        "tensors</text>"
    )
    parts.append(
        f'<rect class="inside" x="{LEFT + 110}" y="{legend - 9}" '
        f'width="10" height="10"/><text x="{LEFT + 126}" '
        f'y="{legend}">held inside the operator</text>'
    )
    with open(output, "w") as file:
        file.write(
            f'<svg xmlns="http://www.w3.org/2000/svg" '
            f'viewBox="0 0 {WIDTH} {HEIGHT}" width="{WIDTH}" '
            f'height="{HEIGHT}">\n<style>{STYLE}</style>\n'
            '<rect width="100%" height="100%" fill="white"/>\n' + "\n".join(parts) + "\n</svg>\n"
        )


if __name__ == "__main__":
    main()
