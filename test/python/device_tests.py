"""Programs on a device with memory of its own: planned by its figures and by what is free
there, and run there. The device stands in for a GPU (stand_in_device.py)."""

import copy
import json
import os
import pathlib
import subprocess
import sys
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional as F

import koila
from koila import _cli, _device
from koila._plan import plan_cache
from koila.memory import budget_bytes
from stand_in_device import DEVICE, memory

PROFILES = pathlib.Path(__file__).parents[2] / "lib" / "KernelModels" / "Profiles"
STUB = pathlib.Path(koila.__file__).parents[2] / "lib" / "libKoilaStubGpu.so"
COUNT, WIDTH, CLASSES = 2048, 32, 10
MIB = 1 << 20


def make_model():
    torch.manual_seed(0)
    layers = [
        nn.Linear(WIDTH, 64),
        nn.Tanh(),
        nn.Linear(64, 64),
        nn.Tanh(),
        nn.Linear(64, CLASSES),
    ]
    return nn.Sequential(*layers).double()


def make_images():
    torch.manual_seed(0)
    layers = [nn.Conv2d(3, 16, 3, padding=1), nn.ReLU(), nn.Flatten(), nn.Linear(1024, CLASSES)]
    return nn.Sequential(*layers).double()


def make_batch(*shape):
    torch.manual_seed(1)
    shape = shape or (COUNT, WIDTH)
    return torch.randn(*shape, dtype=torch.float64), torch.arange(shape[0]) % CLASSES


def step(model, x, y):
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return loss


def measure_plain(make, *shape):
    """What a step of plain PyTorch takes of the device."""
    model, (x, y) = make().to(DEVICE), make_batch(*shape)
    x, y = x.to(DEVICE), y.to(DEVICE)
    return memory.measure(lambda: step(model, x, y))


def assert_equal_gradients(model, wanted):
    for weight, right in zip(model.parameters(), wanted.parameters(), strict=True):
        assert weight.device == weight.grad.device == DEVICE
        torch.testing.assert_close(weight.grad.cpu(), right.grad, rtol=1e-9, atol=1e-11)


@pytest.fixture(autouse=True)
def fresh():
    plan_cache.forget()
    yield
    memory.end()


class TestLazy:
    @pytest.mark.parametrize("part", [2, 3, 5])
    def test_a_step_within_what_is_free(self, part):
        room = measure_plain(make_model) // part
        model, wanted, (x, y) = make_model(), make_model(), make_batch()
        step(wanted, x, y)
        model, x, y = model.to(DEVICE), x.to(DEVICE), y.to(DEVICE)
        plain = copy.deepcopy(model)
        with pytest.raises(torch.OutOfMemoryError):
            memory.measure(lambda: step(plain, x, y), room)
        memory.begin(room)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            lazy, labels = koila.lazy(x, y, batch=0)
            loss = step(model, lazy, labels)
        how, figures = koila.last(), memory.read()
        # By plan, not by another try.
        assert how.tile < COUNT and how.peak_bytes <= how.budget_bytes and figures.refusals == 0
        assert memory.end() <= room
        assert lazy.device == loss.device == DEVICE
        assert_equal_gradients(model, wanted)

    def test_nothing_is_taken_to_the_host(self):
        room = measure_plain(make_model) // 3
        model, (x, y) = make_model().to(DEVICE), make_batch()
        x, y = x.to(DEVICE), y.to(DEVICE)
        memory.begin(room)
        lazy, labels = koila.lazy(x, y, batch=0)
        step(model, lazy, labels)
        # Numbers by which tensors are known again.
        assert koila.last().tile < COUNT and memory.read().taken_down < 1024
        # What is taken there is counted.
        x.cpu()
        assert memory.read().taken_down >= x.nbytes

    def test_steps_with_an_optimizer(self):
        model, wanted, (x, y) = make_model(), make_model(), make_batch()
        plain = torch.optim.Adam(wanted.parameters())
        room = measure_plain(make_model)
        model.to(DEVICE)
        optimizer = torch.optim.Adam(model.parameters())
        losses = []
        for _ in range(3):
            plain.zero_grad()
            losses.append(step(wanted, x, y).item())
            plain.step()
        there, labels = x.to(DEVICE), y.to(DEVICE)
        memory.begin(room)
        for right in losses:
            optimizer.zero_grad()
            loss = step(model, *koila.lazy(there, labels, batch=0))
            optimizer.step()
            assert loss.item() == pytest.approx(right, rel=1e-9)
        assert koila.last().tile < COUNT and memory.read().refusals == 0
        for weight, right in zip(model.parameters(), wanted.parameters(), strict=True):
            torch.testing.assert_close(weight.detach().cpu(), right.detach())

    def test_evaluation(self):
        model, (x, y) = make_model(), make_batch()
        with torch.no_grad():
            right = (model(x).argmax(1) == y).double().mean().item()
            model, x, y = model.to(DEVICE), x.to(DEVICE), y.to(DEVICE)
            room = memory.measure(lambda: model(x)) * 2 // 3
            with pytest.raises(torch.OutOfMemoryError):
                memory.measure(lambda: model(x), room)
            memory.begin(room)
            lazy, labels = koila.lazy(x, y, batch=0)
            found = (model(lazy).argmax(1) == labels).double().mean()
        assert found.device == DEVICE and found.item() == pytest.approx(right)
        assert memory.read().refusals == 0 and koila.last().tile < COUNT

    def test_what_is_not_known_is_said(self):
        """The workspaces of cuDNN: tiles by the rest of the figure."""
        shape = (256, 3, 8, 8)
        room = measure_plain(make_images, *shape) // 2
        model, wanted, (x, y) = make_images().to(DEVICE), make_images(), make_batch(*shape)
        step(wanted, x, y)
        x, y = x.to(DEVICE), y.to(DEVICE)
        memory.begin(room)
        with pytest.warns(koila.KoilaWarning, match="without a promise.*workspace") as said:
            step(model, *koila.lazy(x, y, batch=0))
        assert len([one for one in said if "promise" in str(one.message)]) == 1
        assert koila.last().tile < shape[0]
        assert_equal_gradients(model, wanted)

    def test_memory_that_runs_out_all_the_same(self):
        room = measure_plain(make_model) // 2
        model, wanted, (x, y) = make_model().to(DEVICE), make_model(), make_batch()
        step(wanted, x, y)
        lazy, labels = koila.lazy(x.to(DEVICE), y.to(DEVICE), batch=0, budget="1GiB")
        memory.begin(room)
        with pytest.warns(koila.KoilaWarning, match="memory ran out"):
            step(model, lazy, labels)
        assert memory.read().refusals > 0 and koila.last().tile < COUNT
        assert_equal_gradients(model, wanted)

    def test_tensors_of_the_device_that_the_program_makes(self):
        def compute(model, x):
            start = torch.zeros(len(x), CLASSES, dtype=x.dtype, device=x.device)
            noise = torch.ones_like(x)
            return (start + model(x + noise)).square().mean()

        model, wanted, (x, _) = make_model().to(DEVICE), make_model(), make_batch()
        compute(wanted, x).backward()
        x = x.to(DEVICE)
        plain = copy.deepcopy(model)
        room = memory.measure(lambda: compute(plain, x).backward()) // 2
        memory.begin(room)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            compute(model, koila.lazy(x, batch=0)).backward()
        assert koila.last().tile < COUNT and memory.read().refusals == 0
        assert_equal_gradients(model, wanted)


class TestCompile:
    def test_a_step_within_what_is_free(self):
        room = measure_plain(make_model) // 2
        model, wanted, (x, y) = make_model().to(DEVICE), make_model(), make_batch()
        step(wanted, x, y)
        x, y = x.to(DEVICE), y.to(DEVICE)
        plain = copy.deepcopy(model)
        with pytest.raises(torch.OutOfMemoryError):
            memory.measure(lambda: step(plain, x, y), room)
        memory.begin(room)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            compiled = koila.compile(model, x, y, loss="cross_entropy")
            loss = compiled.train_step(x, y)
        assert compiled.tile < COUNT and memory.read().refusals == 0
        assert compiled.report.data["device"] == "cuda"
        assert loss.device == DEVICE and memory.end() <= room
        assert_equal_gradients(model, wanted)

    def test_inference(self):
        model, (x, _) = make_model(), make_batch()
        with torch.no_grad():
            wanted = model(x)
            model, there = model.to(DEVICE), x.to(DEVICE)
            room = memory.measure(lambda: model(there))
            memory.begin(room)
            compiled = koila.compile(model, there)
            found = compiled(there)
        assert compiled.tile < COUNT and found.device == DEVICE
        torch.testing.assert_close(found.cpu(), wanted)

    def test_what_is_not_known_is_said(self):
        shape = (256, 3, 8, 8)
        room = measure_plain(make_images, *shape)
        model, wanted, (x, y) = make_images().to(DEVICE), make_images(), make_batch(*shape)
        step(wanted, x, y)
        x, y = x.to(DEVICE), y.to(DEVICE)
        memory.begin(room)
        with pytest.warns(koila.KoilaWarning, match="without a promise.*workspace"):
            compiled = koila.compile(model, x, y, loss="cross_entropy")
        compiled.train_step(x, y)
        assert compiled.tile < shape[0]
        assert_equal_gradients(model, wanted)

    @pytest.mark.parametrize("options", [{"tile": 8}, {"budget": "200KiB"}])
    def test_files_run_there_and_on_the_cpu(self, tmp_path, options):
        model, x = make_model(), make_batch()[0]
        compiled = koila.compile(make_model().to(DEVICE), x.to(DEVICE), **options)
        compiled.save(tmp_path / "tiled.pt")
        with torch.no_grad():
            wanted = model(x)
            for device in (DEVICE, torch.device("cpu")):
                program = torch.jit.load(tmp_path / "tiled.pt", map_location=device)
                assert program.koila_tile == compiled.tile < COUNT
                found = program(x.to(device))
                assert found.device == device
                torch.testing.assert_close(found.cpu(), wanted)

    def test_fit_refuses_figures_that_miss_bytes_or_are_of_another_device(self):
        model, (x, _) = make_images().to(DEVICE), make_batch(64, 3, 8, 8)
        compiled = koila.compile(model, x.to(DEVICE), tile=8)
        assert "by_tile" not in compiled.report.data
        with pytest.raises(koila.KoilaError, match="what an operator takes is not known exactly"):
            koila.fit(compiled, "64MiB")
        # The control: without convolutions all is known.
        known = koila.compile(make_model().to(DEVICE), make_batch()[0].to(DEVICE), tile=8)
        assert koila.fit(known, "64MiB") > 8
        # They are those of one kind of device.
        with pytest.raises(koila.KoilaError, match="known for cpu, and the module is on standin"):
            koila.fit(
                koila.compile(make_model(), make_batch()[0], tile=8).script.to(DEVICE), "1MiB"
            )


class TestReports:
    def test_of_the_kernels_where_the_tensors_are(self):
        model, (x, _) = make_model(), make_batch()
        there = copy.deepcopy(model).to(DEVICE)
        assert koila.analyze(model, x).data["device"] == "cpu"
        assert koila.analyze(there, x.to(DEVICE)).data["device"] == "cuda"
        # Of specs it is that of the weights.
        assert koila.analyze(there, "float64[B,32]", batch=8).data["device"] == "cuda"
        assert koila.analyze(model, x, device="h200").data["device"] == "h200"
        with pytest.raises(koila.KoilaError, match="device=cuda:0"):
            koila.analyze(model, x, device="cuda:0")

    def test_the_largest_batch(self):
        model, (x, _) = make_model().to(DEVICE), make_batch()
        x = x.to(DEVICE)
        memory.begin(2 * MIB)
        free = budget_bytes("auto", DEVICE)
        found = koila.max_batch(model, x)
        assert (
            found == koila.max_batch(model, x, budget=free) == koila.analyze(model, x).max_batch()
        )
        assert 0 < found < COUNT
        with torch.no_grad():
            memory.measure(lambda: model(x[:found]), free)
        with pytest.raises(koila.KoilaError, match="give the bytes"):
            koila.max_batch(make_model(), x.cpu(), device="h200")
        assert koila.max_batch(make_model(), x.cpu(), device="h200", budget=free) == found

    def test_programs_that_ask_where_they_are(self):
        class Asks(nn.Module):
            def forward(self, x):
                if x.is_cuda:
                    return x.exp()
                return torch.cat([x, x, x, x]).exp()

        (x, _) = make_batch()
        script = torch.jit.script(Asks())
        assert koila.analyze(script, x, device="cuda").peak == x.nbytes
        assert koila.analyze(script, x).peak == 8 * x.nbytes

    def test_the_command(self, tmp_path, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        torch.jit.script(make_model()).save("model.pt")
        command = ["report", "model.pt", "--input", "float64[B,32]", "--batch", "8", "--json"]
        assert _cli.main([*command, "--device", "h200"]) == 0
        assert json.loads(capsys.readouterr().out)["device"] == "h200"
        command += ["--device", "h200", "--budget", "auto"]
        # A driver that is there sees no GPU.
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
        monkeypatch.delenv("KOILA_BUDGET", raising=False)
        assert _cli.main(command) == 1
        said = capsys.readouterr().err
        assert "budget=auto: " in said and "; give the bytes that are free" in said
        monkeypatch.setenv("KOILA_BUDGET", "64KiB")
        assert _cli.main(command) == 0
        assert 0 < json.loads(capsys.readouterr().out)["max_batch"] < COUNT

    @pytest.mark.skipif(not STUB.is_file(), reason="built without the headers of CUDA")
    def test_the_command_asks_the_driver(self, tmp_path):
        """As koila-opt does: the driver is test/Unit/StubGpu.cpp."""
        torch.jit.script(make_model()).save(tmp_path / "model.pt")
        for name in ("libcuda.so.1", "libnvidia-ml.so.1"):
            (tmp_path / name).symlink_to(STUB)
        paths = [str(tmp_path), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = {**os.environ, "LD_LIBRARY_PATH": os.pathsep.join(filter(None, paths))}
        environment.pop("KOILA_BUDGET", None)

        def run(*arguments):
            return subprocess.run(
                arguments,
                capture_output=True,
                text=True,
                cwd=tmp_path,
                check=True,
                env=environment,
            )

        call = ["model.pt", "--input=float64[B,32]"]
        card = "h100-80gb-hbm3"
        options = ["--batch", "8", "--device", card, "--budget", "auto", "--json"]
        done = run(sys.executable, "-m", "koila", "report", *call, *options)
        budget = f"device={card} budget=auto format=json output=report.json floor=false"
        asked = run(
            str(STUB.parents[1] / "bin" / "koila-opt"),
            *(*call, "--batch=B=8", "--koila-infer-shapes"),
            *(f"--koila-peak-memory={budget}", "-o", os.devnull),
        )
        found = json.loads(done.stdout)["max_batch"]
        assert found == json.loads((tmp_path / "report.json").read_text())["max_batch"]
        note = "budget=auto: 4.33 GiB"
        assert note in done.stderr and note in asked.stderr, (done.stderr, asked.stderr)


class TestMixes:
    def test_what_pytorch_refuses(self):
        model, (x, y) = make_model().to(DEVICE), make_batch()
        with pytest.raises(RuntimeError, match=r"same device.*standin:0.*cpu"):
            step(model, *koila.lazy(x, y, batch=0))

    def test_a_program_that_moves_its_batch(self):
        """As in plain PyTorch, which is said to be unprotected where it may not fit."""
        model, wanted, (x, y) = make_model().to(DEVICE), make_model(), make_batch()
        right = step(wanted, x, y).item()
        room = measure_plain(make_model) * 2
        memory.begin(room)
        lazy, labels = koila.lazy(x, y, batch=0)
        words = r"nothing protects it.*on cpu, and .*on standin:0"
        with pytest.warns(koila.KoilaWarning, match=words):
            loss = step(model, lazy.to(DEVICE), labels.to(DEVICE))
        assert loss.item() == pytest.approx(right)
        assert_equal_gradients(model, wanted)

    def test_numbers_of_the_cpu(self):
        model, wanted, (x, y) = make_model().to(DEVICE), make_model(), make_batch()
        factor = torch.tensor(0.5, dtype=torch.float64)
        step(wanted, x * factor, y)
        room = measure_plain(make_model)
        x, y = x.to(DEVICE), y.to(DEVICE)
        memory.begin(room)
        with warnings.catch_warnings():
            warnings.simplefilter("error", koila.KoilaWarning)
            lazy, labels = koila.lazy(x, y, batch=0)
            step(model, lazy * factor, labels)
        assert koila.last().tile < COUNT
        assert_equal_gradients(model, wanted)

    @pytest.mark.parametrize("function", [koila.analyze, koila.compile, koila.max_batch])
    def test_modules_are_told_what_is_where(self, function):
        words = r"input 0 of shape \(2048, 32\) is on cpu, and '0.weight' of shape .* on standin:0"
        with pytest.raises(koila.CompileError, match=words):
            function(make_model().to(DEVICE), make_batch()[0])


class TestFigures:
    def test_devices_without_figures_are_refused(self, monkeypatch):
        model, x = make_model().to(DEVICE), make_batch()[0].to(DEVICE)
        monkeypatch.setattr(_device, "_kinds", {"cuda": _device._kinds["cuda"]})
        for call in (
            lambda: koila.lazy(x, batch=0),
            lambda: koila.lazy(x, batch=0, budget="1GiB"),
            lambda: koila.analyze(model, x),
            lambda: koila.compile(model, x, tile=8),
            lambda: koila.max_batch(model, x, budget=MIB),
            lambda: koila.memory.free(DEVICE),
        ):
            with pytest.raises(koila.KoilaError, match="no figures of devices of type 'standin'"):
                call()

    def test_what_tensors_can_get(self):
        def available(free, allocated, reserved, split=0, limit=1000):
            return _device.MemoryOfDevice(free, allocated, reserved, split, limit).available()

        assert available(600, 0, 0) == 600
        # Segments that are kept whole, not what is left between tensors.
        assert available(600, 100, 300) == 800 and available(600, 100, 300, split=50) == 750
        # A limit of the process is one of what is reserved.
        assert available(600, 100, 300, limit=500) == 400
        assert available(600, 100, 300, split=50, limit=500) == 350
        assert available(0, 400, 400, limit=300) == 0

    def test_what_is_kept_is_free(self):
        memory.begin(4 * MIB)
        tensor = torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
        assert koila.memory.free(DEVICE) == 3 * MIB
        del tensor
        assert memory.read().reserved - memory._start == MIB
        assert koila.memory.free(DEVICE) == 4 * MIB

    @pytest.mark.parametrize(
        "free,budget",
        [(1600 * MIB, 1500 * MIB), (320 * MIB, 224 * MIB), (60 * MIB, 30 * MIB), (0, 0)],
    )
    def test_a_part_stays_free(self, monkeypatch, free, budget):
        monkeypatch.delenv("KOILA_BUDGET", raising=False)
        monkeypatch.setattr(koila.memory, "free", lambda device: free)
        assert budget_bytes("auto", DEVICE) == budget_bytes("auto", "cuda:0") == budget

    def test_cards(self, monkeypatch):
        for path in PROFILES.glob("*.json"):
            profile = json.loads(path.read_text())
            properties = profile["properties"]
            major, minor = properties["capability"]["value"]
            card = types.SimpleNamespace(
                name=profile["name"],
                major=major,
                minor=minor,
                multi_processor_count=properties["multiprocessors"]["value"],
            )
            monkeypatch.setattr(torch.cuda, "get_device_properties", lambda _, card=card: card)
            assert _device._find_card(torch.device("cuda:0")) == profile["device"]
            # Another card of this name, and one that nobody knows.
            card.multi_processor_count -= 2
            assert _device._find_card(torch.device("cuda:0")) == "cuda"
            card.name = "NVIDIA Something"
            assert _device._find_card(torch.device("cuda:0")) == "cuda"

    def test_other_kernels_under_the_same_name(self, monkeypatch):
        monkeypatch.setattr(torch.version, "hip", "7.0")
        with pytest.raises(koila.KoilaError, match="ROCm"):
            _device._find_card(torch.device("cuda:0"))

    def test_what_a_block_takes(self):
        with koila.memory.count_memory(DEVICE) as counted:
            kept = torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
            torch.empty(2 * MIB, dtype=torch.uint8, device=DEVICE)
            assert counted.get_live() == MIB and counted.get_peak() == 3 * MIB
        del kept
        assert counted.get_live() == MIB and counted.get_peak() == 3 * MIB
        with koila.memory.count_memory(DEVICE) as counted:
            torch.empty(MIB, dtype=torch.uint8, device=DEVICE)
        # The process had more before.
        assert counted.get_peak() == 0
