"""check_page.py PAGE.html REPORT.json: the page is one file, and shows the
report."""

import html.parser
import json
import pathlib
import re
import sys


class Reader(html.parser.HTMLParser):
    """Scripts by type, and whether all elements are closed."""

    VOID = frozenset({"meta", "link", "br", "img", "input"})

    def __init__(self):
        super().__init__()
        self.open, self.scripts, self.fetched = [], {}, []

    def handle_starttag(self, tag, attributes):
        attributes = dict(attributes)
        self.fetched += [attributes[key] for key in ("src", "href") if key in attributes]
        if tag not in self.VOID:
            self.open.append((tag, attributes.get("type")))

    def handle_endtag(self, tag):
        assert self.open.pop()[0] == tag, f"</{tag}> closes something else"

    def handle_data(self, data):
        if self.open and self.open[-1][0] == "script":
            self.scripts[self.open[-1][1]] = data


page = pathlib.Path(sys.argv[1]).read_text(encoding="utf-8")
reader = Reader()
reader.feed(page)
assert not reader.open, f"not closed: {reader.open}"
assert not reader.fetched, f"the page needs other files: {reader.fetched}"
assert not re.search(r"url\(|@import|fetch\(|import\(", page)

report = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
shown = json.loads(reader.scripts["application/json"])
assert shown == report, "the page shows another report"

# What is drawn adds up: storages and what operators hold inside reach the
# peak, and never more.
tops = [entry["transient_bytes"] for entry in report["timeline"]]
for storage in report["storages"]:
    for index in range(storage["from"], storage["to"] + 1):
        tops[index] += storage["bytes"]
assert max(tops) == report["peak_bytes"], (tops, report["peak_bytes"])
for entry, top in zip(report["timeline"], tops, strict=True):
    assert top == entry["live_bytes"] + entry["transient_bytes"], entry
for key in ("by_line", "by_module", "by_kind"):
    assert sum(group["bytes"] for group in report[key]) == sum(
        tensor["bytes"] for tensor in report["live_at_peak"]
    )
print(f"{len(report['storages'])} storages, {len(tops)} entries")
