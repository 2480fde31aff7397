"""browse_page.py CHROMIUM PAGE.html REPORT.json [PAGE_WITHOUT_BATCH.html]:
what somebody who opens the page sees is what the report says.

Then the same with pages that are damaged on purpose: each must be noticed.
"""

import collections
import json
import pathlib
import re
import sys
import tempfile

from browser import Browser, Page

# What is under every third pixel, in a narrow window every one, and which
# colour it has.
SCAN = """(() => {
  const canvas = document.getElementById("timeline");
  const tip = document.getElementById("tip");
  const box = canvas.getBoundingClientRect();
  const {width, height} = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const found = {};
  const step = box.width > 600 ? 3 : 1;
  for (let x = 1; x < box.width; x += step)
    for (let y = 1; y < box.height; y += 3) {
      canvas.dispatchEvent(new MouseEvent("mousemove",
        {clientX: box.left + x, clientY: box.top + y, bubbles: true}));
      if (getComputedStyle(tip).display === "none") continue;
      const area = found[tip.textContent] ??= {points: 0, colors: {}, at: []};
      const at = 4 * (y * width + x);
      const color = data.slice(at, at + 4).join();
      ++area.points;
      area.colors[color] = (area.colors[color] ?? 0) + 1;
      area.at.push([x, y]);
    }
  canvas.dispatchEvent(new MouseEvent("mouseleave"));
  return found;
})()"""

# The dots of the curve: columns and rows of pixels of the colour of text.
DOTS = """(() => {
  const canvas = document.getElementById("curve");
  const {width, height} = canvas;
  const data = canvas.getContext("2d").getImageData(0, 0, width, height).data;
  const wanted = getComputedStyle(document.body).color.match(/\\d+/g);
  const dots = [];
  for (let x = 0; x < width; ++x)
    for (let y = 0; y < height; ++y) {
      const at = 4 * (y * width + x);
      if (data[at + 3] > 250 &&
          wanted.every((part, i) => Math.abs(data[at + i] - part) < 3))
        dots.push([x, y]);
    }
  return dots;
})()"""

ROWS = """(id) => [...document.getElementById(id).rows].map(
  (row) => [...row.cells].map((cell) => cell.textContent))"""


class Wrong(Exception):
    pass


def need(condition, sentence):
    if not condition:
        raise Wrong(sentence)


def place(location):
    """As the page spells it."""
    if not location:
        return ""
    line = f"{location['file']}:{location['line']}" if location["file"] else ""
    return ", ".join(part for part in (line, location["module"]) if part)


def check_quiet(page):
    need(not page.complaints(), f"the console says: {page.complaints()}")
    others = [url for url in page.requests() if url != page.url]
    need(not others, f"the page asks for {others}")


def check_fits(page):
    wide = page.evaluate(
        "[document.documentElement.scrollWidth, document.documentElement.clientWidth]"
    )
    need(wide[0] <= wide[1], f"the page is wider than the window: {wide}")


def check_head(page, report):
    text = page.evaluate("document.body.innerText")
    for figure in ("peak_bytes", "parameter_bytes"):
        need(f"{report[figure]:,}" in text, f"{figure} is not shown")
    need(f"= {report['batch']['value']}" in text, "the batch is not shown")
    need(place(report["peak_location"]) in text, "the place of the peak is not shown")


def check_live(page, report):
    shown = page.evaluate(f"({ROWS})('live')")[1:]
    expected = [
        [
            f"{tensor['bytes']:,}",
            tensor["name"],
            tensor["type"],
            tensor["kind"],
            place(tensor["location"]),
        ]
        for tensor in report["live_at_peak"]
    ]
    need([row[1:] for row in shown] == expected, f"alive at the peak are {shown}, not {expected}")
    for key in ("by_line", "by_module", "by_kind"):
        names = [row[1] for row in page.evaluate(f"({ROWS})('{key}')")]
        need(names == [group["name"] for group in report[key]], f"{key} shows {names}")


def check_bands(page, report):
    """One area per storage that is large enough, in one colour, as long and
    high as its lifetime and its bytes; gives an area to point at."""
    found = page.evaluate(SCAN)
    most = report["peak_bytes"]
    expected = collections.Counter()
    for storage in report["storages"]:
        if storage["bytes"] > most / 50:
            span = storage["to"] - storage["from"] + 1
            expected[
                f"{storage['name']} {storage['type']}: ", f"{place(storage['location'])}, "
            ] += storage["bytes"] * span
    need(expected, "vacuous: no storage is large")
    for entry in report["timeline"]:
        if entry["transient_bytes"] > most / 50:
            expected[f"inside of {entry['op']}: ", place(entry["location"])] += entry[
                "transient_bytes"
            ]
    areas = {}
    for start, where in expected:
        matching = [text for text in found if text.startswith(start) and where in text]
        need(matching, f"no area says '{start}… {where}'")
        areas[start, where] = matching
    total = sum(len(area["at"]) for area in found.values())
    drawn = sum(
        storage["bytes"] * (storage["to"] - storage["from"] + 1) for storage in report["storages"]
    ) + sum(entry["transient_bytes"] for entry in report["timeline"])
    for key, matching in areas.items():
        points = sum(found[text]["points"] for text in matching)
        share, wanted = points / total, expected[key] / drawn
        need(
            abs(share - wanted) < 0.1 * wanted + 0.004,
            f"'{key[0]}' has {share:.2%} of the area, not {wanted:.2%}",
        )
        colors = collections.Counter()
        for text in matching:
            colors.update(found[text]["colors"])
        need(
            max(colors.values()) > 0.5 * points and not max(colors, key=colors.get).endswith(",0"),
            f"'{key[0]}' is drawn in {dict(colors)}",
        )
    largest = max(
        (text for text in found if "allocated at" in text), key=lambda text: found[text]["points"]
    )
    return largest, found[largest]["at"]


def check_hover(page, text, points):
    """With a real mouse."""
    box = page.evaluate(
        "(() => { const element = "
        "document.getElementById('timeline'); "
        "element.scrollIntoView({block: 'center'}); "
        "const box = element.getBoundingClientRect(); "
        "return [box.left, box.top]; })()"
    )
    x, y = points[len(points) // 2]
    page.move_mouse(box[0] + x, box[1] + y)
    tip = page.evaluate(
        "(() => { const tip = document.getElementById('tip'); "
        "const box = tip.getBoundingClientRect(); return "
        "[getComputedStyle(tip).display, tip.textContent, "
        "box.left >= 0 && box.top >= 0 && "
        "box.right <= innerWidth && box.bottom <= innerHeight]"
        "; })()"
    )
    need(tip[0] == "block" and tip[1] == text, f"the mouse shows {tip}")
    need(tip[2], "the tip leaves the window")
    need(re.search(r"\S+:\d+", tip[1]), f"no line in '{tip[1]}'")
    page.move_mouse(1, 1)
    need(
        page.evaluate("getComputedStyle(document.getElementById('tip')).display") == "none",
        "the tip stays",
    )


def check_curve(page, report):
    pieces = report["batch_pieces"]
    text = page.evaluate("document.getElementById('pieces').textContent")
    for piece in pieces[:8]:
        for factor in filter(None, piece["coefficients"]):
            need(f"{factor:,}" in text, f"'{text}' lacks {factor:,}")
    figures = {
        batch: sum(factor * batch**power for power, factor in enumerate(piece["coefficients"]))
        for piece in pieces
        for batch in range(piece["from"], piece["to"] + 1)
    }
    marked = report["batch"]["value"]
    if marked in figures:
        need(figures[marked] == report["peak_bytes"], "the curve and the peak differ")
        del figures[marked]  # under its mark
    dots = []
    for x, y in page.evaluate(DOTS):
        near = [dot for dot in dots if abs(dot[-1][0] - x) < 3 and abs(dot[0][1] - y) < 4]
        near[0].append((x, y)) if near else dots.append([(x, y)])
    middles = [[sum(part) / len(dot) for part in zip(*dot, strict=True)] for dot in dots]
    need(len(middles) == len(figures), f"{len(middles)} dots for {len(figures)} batches")
    # All on one scale.
    (x0, y0), (x1, y1) = middles[0], middles[-1]
    batches = sorted(figures)
    first, last = batches[0], batches[-1]
    for batch, (x, y) in zip(batches, middles, strict=True):
        right = x0 + (x1 - x0) * (batch - first) / (last - first)
        down = y0 + (y1 - y0) * (figures[batch] - figures[first]) / (figures[last] - figures[first])
        need(
            abs(x - right) < 2 and abs(y - down) < 2,
            f"the dot of batch {batch} is at {x}, {y}, not {right}, {down}",
        )


def check(browser, path, report):
    for width, height in ((1280, 900), (390, 800)):
        page = Page(browser, path, width, height)
        try:
            check_quiet(page)
            check_fits(page)
            check_head(page, report)
            check_live(page, report)
            check_curve(page, report) if width > 1000 else None
            check_hover(page, *check_bands(page, report))
            check_quiet(page)
        finally:
            page.close()


# ---------------------------------------------------------------------------
# Pages that are damaged


def edited(edit):
    """A damage to the report inside of the page."""

    def damage(text):
        start, rest = text.split('id="report">', 1)
        data, end = rest.split("</script>", 1)
        report = json.loads(data)
        edit(report)
        return (
            start + 'id="report">' + json.dumps(report).replace("<", "\\u003c") + "</script>" + end
        )

    return damage


def largest(report):
    return max(
        report["storages"],
        key=lambda storage: storage["bytes"] * (storage["to"] - storage["from"] + 1),
    )


def lose_storage(report):
    report["storages"].remove(largest(report))


def halve_storage(report):
    largest(report)["bytes"] //= 2


def rename_storage(report):
    largest(report)["name"] = "somebody"


def move_storage(report):
    largest(report)["location"]["line"] += 1


def live_one_byte_more(report):
    report["live_at_peak"][-1]["bytes"] += 1


def one_byte_per_sample_more(report):
    for piece in report["batch_pieces"]:
        piece["coefficients"][1] += 1


def lose_live(report):
    report["live_at_peak"].pop()


def lose_module(report):
    report["by_module"].pop()


def peak_one_byte_more(report):
    report["peak_bytes"] += 1


def bend_curve(report):
    report["batch_pieces"][-1]["coefficients"] = [0, 0, 1]


def no_json(text):
    return text.replace('id="report">', 'id="report">}', 1)


def no_hover(text):
    return text.replace("canvas.onmousemove", "canvas.onsomething")


def no_colors(text):
    return text.replace("context.fillRect(", "context.rect(")


def fetches(text):
    return text.replace("<body>", '<body><img src="http://example.com/a.png">')


def too_wide(text):
    return text.replace("</style>", "h1 { width: 2000px; }</style>")


DAMAGES = [
    edited(edit)
    for edit in (
        lose_storage,
        halve_storage,
        rename_storage,
        move_storage,
        live_one_byte_more,
        one_byte_per_sample_more,
        lose_live,
        lose_module,
        peak_one_byte_more,
        bend_curve,
    )
] + [no_json, no_hover, no_colors, fetches, too_wide]


def main():
    program, page, report, *without_batch = sys.argv[1:]
    page = pathlib.Path(page)
    report = json.loads(pathlib.Path(report).read_text())
    with Browser(program) as browser, tempfile.TemporaryDirectory() as folder:
        check(browser, page, report)
        print(f"{len(report['storages'])} storages are shown")
        for path in without_batch:
            opened = Page(browser, pathlib.Path(path), 1280, 900)
            check_quiet(opened)
            text = opened.evaluate("document.body.innerText")
            need("--batch" in text and "Alive" not in text, text)
            opened.close()
            print("without a batch")
        seen = 0
        text = page.read_text()
        for damage in DAMAGES:
            damaged = pathlib.Path(folder) / "damaged.html"
            damaged.write_text(damage(text))
            need(damaged.read_text() != text, "nothing was damaged")
            try:
                check(browser, damaged, report)
            except Wrong as noticed:
                seen += 1
                print(f"noticed: {str(noticed)[:160]}", file=sys.stderr)
            else:
                print(f"not noticed: damage {DAMAGES.index(damage)}")
        print(f"{seen} of {len(DAMAGES)} damages are noticed")


if __name__ == "__main__":
    main()
