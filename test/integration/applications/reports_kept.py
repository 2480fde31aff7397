"""Reports that are kept: pickled by a cache, copied, sent by a worker, saved, and compared."""

# points: 10

import copy
import json
import multiprocessing
import pickle
import queue

import torch
from torch import nn


def measure(koila, width, results):
    model = nn.Sequential(nn.Linear(32, width), nn.ReLU(), nn.Linear(width, 4)).eval()
    results.put(koila.analyze(model, torch.randn(64, 32)))


def application(koila, app):
    fork = multiprocessing.get_context("fork")
    results = fork.Queue()
    worker = fork.Process(target=measure, args=(koila, 512, results))
    worker.start()
    try:
        sent = results.get(timeout=2)
        app.check(sent.peak == 2 * 64 * 512 * 4, f"a worker sends a peak of {sent.peak}")
    except queue.Empty:
        app.check(False, "what a worker sends does not arrive")
    worker.join()
    model = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 4)).eval()
    report = koila.analyze(model, torch.randn(64, 32))
    wide = koila.analyze(
        nn.Sequential(nn.Linear(32, 1024), nn.ReLU(), nn.Linear(1024, 4)).eval(),
        torch.randn(64, 32),
    )
    app.check(report.peak == 2 * 64 * 512 * 4, f"the peak is {report.peak}")
    ways = {
        "pickle": lambda: pickle.loads(pickle.dumps(report)),
        "copy": lambda: copy.copy(report),
        "deepcopy": lambda: copy.deepcopy(report),
        "dict of reports": lambda: copy.deepcopy({"a": [report]})["a"][0],
    }
    for name, way in ways.items():
        try:
            other = way()
        except Exception as error:
            app.check(False, f"{name}: {type(error).__name__}: {error}")
            continue
        for field in ("peak", "batch", "exact", "location", "timeline", "by_line", "data"):
            same = getattr(other, field) == getattr(report, field)
            app.check(same, f"{name}: {field} is another")
        app.check(str(other) == str(report), f"{name}: prints another text")
        app.check(other.min_budget(32) == report.min_budget(32), f"{name}: min_budget")
        app.check(other.diff(wide).peak == wide.peak - report.peak, f"{name}: diff")
        # As far as what was kept says it.
        app.check(other.max_batch(report.peak // 2) == 32, f"{name}: max_batch")
    path = app.folder / "report.json"
    report.save(path)
    app.check(json.loads(path.read_text()) == report.data, "the file is another report")
    app.check(type(report).load(path).peak == report.peak, "the file has another peak")
