"""What tools/bench/gpu_ground_truth.py adds to koila's figures: capture on meta tensors,
the loader and the optimizer of timm, constants and scores."""

import pathlib
import sys

import pytest
import torch
from torch import nn
from torch.nn import functional

sys.path[:0] = [str(pathlib.Path(__file__).resolve().parents[2] / "tools" / "bench")]

import gpu_capture
import gpu_jobs
import gpu_scores
from gpu_jobs_timm import PrefetchLoader, TimmProgram

MIB = gpu_jobs.MIB


class Convolutions(nn.Module):
    def __init__(self):
        super().__init__()
        self.images = nn.Conv2d(4, 8, (3, 5), stride=2, padding=(1, 2), groups=2)
        self.rows = nn.Conv1d(8, 6, 3, dilation=2, bias=False)

    def forward(self, images):
        return self.rows(self.images(images).flatten(2))


def test_a_capture_on_meta_tensors_is_the_program():
    with torch.device("meta"):
        module, images = Convolutions(), torch.empty(2, 4, 16, 16)
    script = gpu_capture.trace(module, (images,))
    assert sum(node.kind() == "aten::_convolution" for node in script.inlined_graph.nodes()) == 2
    for made in (3, 5):
        plain, inputs = Convolutions(), torch.randn(made, 4, 16, 16)
        expected = plain(inputs)
        wanted = torch.jit.trace(plain, (torch.randn(2, 4, 16, 16),))
        torch.testing.assert_close(wanted(inputs), expected)
        # The same operators, with the same settings.
        assert _list_operators(script) == _list_operators(wanted)


def _list_operators(script):
    listed = []
    for node in script.inlined_graph.nodes():
        if not node.kind().startswith("aten::"):
            continue
        settings = [
            value.toIValue() for value in node.inputs() if value.node().kind() == "prim::Constant"
        ]
        lists = [
            [entry.toIValue() for entry in value.node().inputs()]
            for value in node.inputs()
            if value.node().kind() == "prim::ListConstruct"
        ]
        listed.append((node.kind(), [each for each in settings if type(each) is not bool], lists))
    return listed


class Padded(nn.Module):
    """As timm pads: to whole strides, from sizes that are tensors while PyTorch traces."""

    def forward(self, images):
        lacks = [-size % 4 for size in images.shape[-2:]]
        batch = images.size(0)
        return functional.pad(images, (0, lacks[1], 0, lacks[0])).view(batch * 3, -1)


def test_sizes_are_numbers_but_for_the_batch():
    script = gpu_capture.trace(Padded(), (torch.empty(gpu_capture.BATCH, 3, 5, 7, device="meta"),))
    for batch in (1, 6):
        assert script(torch.empty(batch, 3, 5, 7)).shape == (batch * 3, 8 * 8)
    # Of other images the paddings are not computed anew.
    assert script(torch.empty(2, 3, 4, 4)).shape == (2 * 3, 7 * 5)


class Positions(nn.Module):
    def forward(self, images):
        return images + torch.arange(4, device=images.device)


def test_the_device_of_a_capture_is_not_in_the_program():
    script = gpu_capture.trace(Positions(), (torch.empty(gpu_capture.BATCH, 4, device="meta"),))
    assert "meta" not in script.code
    assert script(torch.zeros(2, 4)).tolist() == [[0, 1, 2, 3]] * 2


def test_padding_by_name_is_refused():
    with torch.device("meta"):
        module, images = nn.Conv2d(3, 3, 3, padding="same"), torch.empty(2, 3, 8, 8)
    with pytest.raises(RuntimeError, match="padding='same'"):
        gpu_capture.trace(module, (images,))


def test_models_that_compute_while_they_are_built():
    assert (
        gpu_capture.construct(lambda: nn.Linear(2, int(torch.linspace(0, 4, 2)[1]))).out_features
        == 4
    )
    assert gpu_capture.construct(lambda: nn.Linear(2, 2)).weight.is_meta
    built = gpu_capture.construct(lambda: nn.Linear(2, torch.tensor([3, 4]).tolist()[1]))
    assert not built.weight.is_meta


class Recorder:
    """A process that counts what is on its streams."""

    def __init__(self):
        self.live, self.most, self.count = {}, {0: 0, 1: 0}, 0

    def allocate(self, size, stream=0):
        self.count += 1
        self.live[self.count] = size, stream
        total = sum(size for size, own in self.live.values() if own == stream)
        self.most[stream] = max(self.most[stream], total)
        return self.count

    def free(self, numbers):
        for number in numbers:
            del self.live[number]


def test_a_batch_is_one_ahead_on_its_stream():
    process = Recorder()
    loader = PrefetchLoader(process, pixels=10, batch=3)
    assert process.most[0] == 24
    for _ in range(5):
        loader.advance()
        # The one in use and the next, each with labels.
        assert sum(size for size, stream in process.live.values() if stream == 1) == 2 * (120 + 24)
    # Two, and the one after them as bytes and as float32.
    assert process.most[1] == 3 * (120 + 24) + 30


def test_groups_of_the_optimizer():
    program = TimmProgram.__new__(TimmProgram)
    program.bytes, program.decays = [8, 16, 32], [True, False, True]
    sizes = program.bytes * 2
    events = [{"action": "alloc", "id": number, "bytes": size} for number, size in enumerate(sizes)]
    events += [{"action": "free", "id": number, "bytes": sizes[number]} for number in (2, 1, 0)]
    grouped = [(event["action"], event["id"]) for event in program._by_group(events)]
    # The momentum of what does not decay; then decayed gradients, momenta, and the end.
    allocated = [("alloc", number) for number in (4, 0, 2, 3, 5)]
    assert grouped == [*allocated, ("free", 2), ("free", 0)]
    events[0]["bytes"] = 16
    with pytest.raises(Exception, match="another order"):
        program._by_group(events)


def predict(own, measured, card="A", group=0, usable=1000 * MIB):
    measured = None if measured is None else measured * MIB
    return gpu_scores.Prediction(own * MIB, measured, usable, card, group, True)


def test_a_constant_is_not_fitted_on_its_own_group():
    rows = [predict(own, own + 50, group=0) for own in (100, 200, 300, 400)]
    rows += [predict(own, own + 70, group=1) for own in (100, 200, 300, 400)]
    rows += [predict(500, 590, card="B", group=0), predict(400, 480, card="B", group=1)]
    gpu_scores.add_context(rows, None, is_pooled=False)
    assert {each.shown - each.own for each in rows[:4]} == {70 * MIB}
    assert {each.shown - each.own for each in rows[4:8]} == {50 * MIB}
    assert [each.shown - each.own for each in rows[8:]] == [80 * MIB, 90 * MIB]
    gpu_scores.add_context(rows, None, is_pooled=True)
    assert {each.shown - each.own for each in rows[8:]} == {70 * MIB, 50 * MIB}
    gpu_scores.add_context(rows, 7 * MIB, is_pooled=False)
    assert {each.shown - each.own for each in rows} == {7 * MIB}


def test_scores():
    rows = [predict(100, 100), predict(94, 100), predict(96, 100), predict(1100, None)]
    rows += [predict(900, None), predict(1100, 990)]
    gpu_scores.add_context(rows, 0, is_pooled=False)
    assert [each.is_right_verdict for each in rows] == [True, True, True, True, False, False]
    assert [each.is_failure for each in rows] == [False, True, False, False, True, True]
    lines = gpu_scores.describe(rows, {})
    assert "verdicts right 66.7 % of 6; wrong, or below 0.95 of the measured: 50.0 %" in lines
    assert lines[-1] == "6 rows, predicted 6, median error 5.00 %, p90 11.11 %, under 50.0 %"


def test_a_job_that_ran_out_of_memory_by_its_allocator():
    fits, ends = predict(1100, 990), predict(900, None)
    fits.runs_out, ends.runs_out = False, True
    gpu_scores.add_context([fits, ends], 0, is_pooled=False)
    assert fits.is_right_verdict
    assert ends.is_right_verdict


def test_the_safe_figure_is_enough_for_the_rows_it_is_fitted_on():
    rows = [predict(100, 100 + number, group=number % 2) for number in range(100)]
    fits = gpu_scores.add_context(rows, 0, is_pooled=False)
    for left_out in (0, 1):
        others = [each for each in rows if each.left_out != left_out]
        (factor,) = [fit[1] for key, fit in fits.items() if key[1] == left_out]
        low = sum(each.shown * factor < each.measured for each in others)
        assert low == len(others) * gpu_scores.TOO_LOW


class Scored(nn.Module):
    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(nn.Linear(6, 40), nn.ReLU(), nn.Linear(40, 3))

    def forward(self, x):
        return self.layers(x).square().mean()


def test_events_of_several_batches_are_those_of_each():
    def make(batches):
        x = torch.empty(gpu_capture.BATCH, 6, device="meta")
        specs = ["float32[B,6]"]
        return gpu_jobs.Program(Scored(), (x,), specs, "a100-sxm4-40gb", batches)

    together = make([1, 2, 64])
    # Of 1,000 nobody knew.
    for batch in (64, 1, 2, 1000):
        alone = make([])
        assert together.list_events(batch, "train") == alone.list_events(batch, "train")
    assert together.list_events(1, "train") != together.list_events(64, "train")


def test_seconds_are_those_of_the_batches_that_took_them():
    x = torch.empty(gpu_capture.BATCH, 6, device="meta")
    program = gpu_jobs.Program(Scored(), (x,), ["float32[B,6]"], "a100-sxm4-40gb", [1, 2, 4])
    program.list_events(1, "train")
    ahead = program.take_ahead()
    assert ahead > 0 and program.take_ahead() == 0
    program.list_events(2, "train")
    assert program.take_ahead() == pytest.approx(-ahead / 2)
    program.list_events(2, "train")
    assert program.take_ahead() == 0
