"""Modules after compiling: what they follow, what they refuse, what is kept."""

import collections
import copy
import io
import pickle
import types
import warnings

import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.nn.utils import prune as pruning

import koila
import networks
from koila._capture import module_snapshot, script


class Traced(nn.Module):
    """TorchScript has no ``*args``."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Linear(64, 16)
        self.dropout = nn.Dropout(0.5)
        self.second = nn.Linear(16, 10)

    def middle(self, x):
        return self.first(x).tanh()

    def forward(self, *inputs):
        return self.second(self.dropout(self.middle(inputs[0])))


class NoGrad(Traced):
    def middle(self, x):
        with torch.no_grad():  # here
            return self.first(x).tanh()


class TensorHook(Traced):
    def middle(self, x):
        y = self.first(x).tanh()
        if y.requires_grad:
            y.register_hook(print)  # here
        return y


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        return gradient * 2


class OwnGradient(Traced):
    def middle(self, x):
        return Doubled.apply(self.first(x).tanh())


def plain_gradients(module, x, y):
    loss = functional.cross_entropy(module(x), y)
    return torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)


@pytest.mark.parametrize("kind", [NoGrad, TensorHook, OwnGradient])
def test_gradients_that_a_trace_lacks(kind):
    module = kind().eval()
    x, y = networks.batch()
    for call in (
        lambda: koila.compile(module, x, y, loss="cross_entropy", tile=8),
        lambda: koila.compile(module, x, y, loss="cross_entropy", budget="1GiB"),
        lambda: koila.analyze(module, x, y, mode="train", loss="cross_entropy"),
    ):
        with pytest.raises(koila.CompileError, match="cannot express") as caught:
            call()
        note = caught.value.notes[0]
        if kind is OwnGradient:
            assert "nor can a trace of it be taken" in note
            continue
        assert "other gradients" in note or "lacks the hook" in note
        assert note.startswith(f"{__file__}:{networks.line_of(kind.middle)}: ")
    if kind is OwnGradient:
        return
    # Without tiles nothing is lost, so that there is no warning.
    whole = koila.compile(module, x, budget="1GiB")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss = functional.cross_entropy(whole(x), y)
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    torch.testing.assert_close(found, plain_gradients(module, x, y))
    # Inference is another matter.
    compiled = koila.compile(module, x, tile=8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))
    # With gradients the module itself runs, not its trace.
    with pytest.warns(koila.KoilaWarning, match="running the untiled program"):
        loss = functional.cross_entropy(compiled(x), y)
    found = torch.autograd.grad(loss, list(module.parameters()), allow_unused=True)
    torch.testing.assert_close(found, plain_gradients(module, x, y))


@pytest.mark.parametrize("hook", ["register_full_backward_hook", "register_full_backward_pre_hook"])
def test_backward_hooks_are_refused(hook):
    module = networks.mlp()
    x, y = networks.batch()
    handle = getattr(module[2], hook)(lambda *_: None)
    with pytest.raises(koila.CompileError, match="'2' \\(Linear\\) has a backward hook"):
        koila.compile(module, x, y, loss="cross_entropy", tile=8)
    with pytest.raises(koila.CompileError, match="has a backward hook"):
        koila.analyze(module, x, y, mode="train", loss="cross_entropy")
    koila.compile(module, x, tile=8)
    handle.remove()
    koila.compile(module, x, y, loss="cross_entropy", tile=8)


def test_forward_hooks_of_python_are_announced():
    module = networks.mlp()
    x, _ = networks.batch()
    seen = []
    module[1].register_forward_hook(lambda part, inputs, output: seen.append(output.shape))
    with pytest.warns(koila.KoilaWarning, match="of the forward hook of '1'"):
        koila.compile(module, x, tile=8)
    # PyTorch's own compute weights, and a trace has that.
    normed = nn.utils.weight_norm(nn.Linear(64, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        compiled = koila.compile(normed, x, tile=8)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), normed(x))
        normed.weight_v.add_(1)  # type: ignore[operator]
        torch.testing.assert_close(compiled(x), normed(x))


def test_a_trace_stands_for_its_mode_only():
    module = Traced().eval()
    x, y = networks.batch()
    compiled = koila.compile(module, x, tile=8)
    step = koila.compile(module, x, y, loss="cross_entropy", tile=8)
    strict = koila.compile(module, x, tile=8, guard="raise")
    module.dropout.train()
    with torch.no_grad():
        with pytest.warns(koila.KoilaWarning, match=r"'dropout' \(Dropout\) is in training mode"):
            torch.manual_seed(5)
            found = compiled(x)
        torch.manual_seed(5)
        torch.testing.assert_close(found, module(x))
        with pytest.raises(koila.CompileError, match="is in training mode"):
            strict(x)
    with pytest.warns(koila.KoilaWarning, match="is in training mode"):
        torch.manual_seed(5)
        loss = step.train_step(x, y)
    torch.manual_seed(5)
    wanted_loss = functional.cross_entropy(module(x), y)
    wanted = torch.autograd.grad(wanted_loss, list(module.parameters()))
    torch.testing.assert_close(loss, wanted_loss.detach())
    torch.testing.assert_close([p.grad for p in module.parameters()], list(wanted))


class Unrolled(Traced):
    def middle(self, x):
        state = 0
        for index in range(x.shape[1] // 64):
            state = torch.tanh(self.first(x[:, index * 64 : index * 64 + 64]) + state)
        return state


@pytest.mark.parametrize("options", [{"tile": 8}, {"budget": "1GiB"}])
def test_a_trace_stands_for_its_shapes_only(options):
    module = Unrolled().eval()
    x, y = torch.randn(16, 128), torch.randint(10, (16,))
    longer = torch.randn(16, 256)
    compiled = koila.compile(module, x, **options)
    step = koila.compile(module, x, y, loss="cross_entropy", **options)
    # The control: this is what the trace makes of it.
    with torch.no_grad():
        assert not torch.allclose(compiled.source(longer), module(longer))
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for given in (longer, x[:5], longer[:7]):
                torch.testing.assert_close(compiled(given), module(given))
            loss, gradients = step.grads(longer, y)
    wanted = functional.cross_entropy(module(longer), y)
    torch.testing.assert_close(loss, wanted.detach())
    torch.testing.assert_close(gradients, list(plain_gradients(module, longer, y)))


class IntoTheBatch(nn.Module):
    """Two numbers of a trace, whose constants TorchScript compares."""

    def forward(self, x):
        batch = x.shape[0]
        batch *= 4
        return x.view(batch, -1).exp().view(batch // 4, -1)


def test_a_trace_that_changes_a_number_in_place():
    x = torch.randn(64, 8)
    traced = torch.jit.trace(IntoTheBatch(), x[:3])
    compiled = koila.compile(traced, x, tile=8)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for given in (x, x[:5]):
            torch.testing.assert_close(compiled(given), given.exp())


def test_a_saved_trace_raises_where_it_does_not_hold(tmp_path):
    module = Unrolled().eval()
    compiled = koila.compile(module, torch.randn(16, 128), tile=8)
    compiled.save(tmp_path / "small.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loaded = torch.jit.load(tmp_path / "small.pt")
    with torch.no_grad():
        loaded(torch.randn(5, 128))
        with pytest.raises(torch.jit.Error, match="extent of dim 1 is not 128"):
            loaded(torch.randn(5, 256))


def test_a_branch_on_the_batch_is_seen_on_the_example():
    class Branch(nn.Module):
        def forward(self, *inputs):
            return inputs[0].tanh() * (2 if inputs[0].shape[0] >= 32 else 1)

    with pytest.raises(koila.CompileError, match="cannot express") as caught:
        koila.compile(Branch(), torch.randn(64, 16), tile=4)
    assert "wrong for a batch of 64" in caught.value.notes[0]


def replace_layer(module):
    module[2] = nn.Linear(256, 10)


def replace_activation(module):
    module[1] = nn.Sigmoid()


def append_layer(module):
    module.append(nn.Tanh())


def replace_forward(module):
    module.forward = lambda x: module[2](module[0](x))


def add_hook(module):
    module[1].register_forward_hook(lambda part, inputs, output: output * 2)


def prune(module):
    pruning.l1_unstructured(module[0], "weight", 0.5)


def replace_class(module):
    module[1].__class__ = nn.Sigmoid


@pytest.mark.parametrize(
    "change",
    [
        replace_layer,
        replace_activation,
        append_layer,
        replace_forward,
        add_hook,
        prune,
        replace_class,
    ],
)
@pytest.mark.filterwarnings("ignore:.*of the forward hook of '1'")
def test_another_module_is_compiled_anew(change, tmp_path):
    module = networks.mlp()
    x, y = networks.batch()
    compiled = koila.compile(module, x, tile=8)
    step = koila.compile(module, x, y, loss="cross_entropy", tile=8)
    before = module(x).detach()
    change(module)
    with pytest.raises(koila.CompileError, match="compile it again"):
        compiled.save(tmp_path / "never.pt")
    with torch.no_grad():
        wanted = module(x)
        assert wanted.shape != before.shape or not torch.allclose(wanted, before)
        torch.testing.assert_close(compiled(x), wanted)
        assert compiled.tile == 8
        # What was compiled anew is what is called and saved from now on.
        torch.testing.assert_close(compiled(x[:13]), module(x[:13]))
    compiled.save(tmp_path / "small.pt")
    loss, gradients = step.grads(x, y)
    torch.testing.assert_close(loss, functional.cross_entropy(module(x), y).detach())
    found = dict(zip(dict(module.named_parameters()), plain_gradients(module, x, y), strict=True))
    wanted_gradients = [gradient for gradient in found.values() if gradient is not None]
    torch.testing.assert_close([g for g in gradients if g.any()], wanted_gradients)


class Settings(nn.Module):
    def __init__(self):
        super().__init__()
        self.factor = torch.full((16,), 2.0)
        self.factors = [1.0, 2.0]
        self.scale = 1.0
        self.convolution = nn.Conv1d(1, 1, 3, padding=1)

    def forward(self, x):
        y = self.convolution(x.unsqueeze(1)).squeeze(1) * self.factor * self.scale
        for factor in self.factors:
            y = y * factor
        return y


def test_settings():
    module = Settings()
    x = torch.randn(32, 16)
    compiled = koila.compile(module, x, tile=8)
    with torch.no_grad():
        module.factor = module.factor * 3
        torch.testing.assert_close(compiled(x), module(x))
        for change, back in [
            (lambda: module.factors.append(3.0), lambda: module.factors.pop()),
            (
                lambda: setattr(compiled, "scale", 3.0),
                lambda: setattr(compiled, "scale", 1.0),
            ),
            (
                lambda: setattr(module.convolution, "padding_mode", "circular"),
                lambda: setattr(module.convolution, "padding_mode", "zeros"),
            ),
        ]:
            for step in (change, back):
                before = module(x)
                step()
                assert not torch.allclose(module(x), before)
                torch.testing.assert_close(compiled(x), module(x))
    assert module.scale == 1.0


class Configured(Traced):
    def __init__(self):
        super().__init__()
        self.config = types.SimpleNamespace(scale=2.0)
        self.nested = {"a": [1.0]}
        self.function = torch.tanh

    def middle(self, x):
        return self.function(self.first(x)) * self.config.scale * self.nested["a"][0]


def test_settings_that_are_objects():
    x, _ = networks.batch()
    for change in (
        lambda module: setattr(module.config, "scale", 3.0),
        lambda module: module.nested["a"].__setitem__(0, 3.0),
        lambda module: setattr(module, "function", torch.sigmoid),
        lambda module: module.first.register_forward_pre_hook(lambda _, args: (args[0] * 2,)),
        lambda module: setattr(module, "added", True),
    ):
        module = Configured().eval()
        compiled = koila.compile(module, x, tile=8)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), module(x))
            change(module)
            torch.testing.assert_close(compiled(x), module(x))
            delattr(module, "function")
            with pytest.raises(AttributeError, match="'function'"):
                compiled(x)


def test_ties():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(16, 16)
            self.head = nn.Linear(16, 16, bias=False)
            self.head.weight = self.embedding.weight

        def forward(self, i):
            return self.head(self.embedding(i).tanh())

    module, i = Tied(), torch.randint(16, (64,))
    compiled = koila.compile(module, i, tile=8)
    one = nn.Parameter(torch.randn(16, 16))
    module.embedding.weight = module.head.weight = one
    with torch.no_grad():
        torch.testing.assert_close(compiled(i), module(i))
    state = {key: torch.randn(16, 16) for key in module.state_dict()}
    module.load_state_dict(state, assign=True)
    with torch.no_grad():
        torch.testing.assert_close(compiled(i), module(i))
    module.head.weight = nn.Parameter(torch.randn(16, 16))
    with torch.no_grad():
        torch.testing.assert_close(compiled(i), module(i))


@pytest.mark.parametrize("make", [networks.mlp, Traced])
def test_copies_have_tensors_of_their_own(make):
    module = make().eval()
    x, y = networks.batch()
    step = copy.deepcopy(koila.compile(module, x, y, loss="cross_entropy", tile=8))
    assert step.original is not module
    step.train_step(x, y)
    assert all(p.grad is None for p in module.parameters())
    wanted = plain_gradients(step.original, x, y)
    torch.testing.assert_close([p.grad for p in step.parameters()], list(wanted))
    compiled = copy.deepcopy(koila.compile(module, x, tile=8))
    average = torch.optim.swa_utils.AveragedModel(koila.compile(module, x, tile=8))
    with torch.no_grad():
        for p in [*compiled.parameters(), *average.parameters()]:
            p.add_(1)
        for copied in (compiled, average.module):
            torch.testing.assert_close(copied(x), copied.original(x))  # type: ignore[operator]
            assert not torch.allclose(copied(x), module(x))
    if make is Traced:
        step.original.dropout.train()  # type: ignore[union-attr]
        with pytest.warns(koila.KoilaWarning, match="is in training mode"):
            step.train_step(x, y)


def test_pickles_are_refused():
    x, _ = networks.batch()
    compiled = koila.compile(networks.mlp(), x, tile=8)
    for store in (pickle.dumps, lambda module: torch.save(module, io.BytesIO())):
        with pytest.raises(koila.CompileError, match="cannot be pickled: store its state_dict"):
            store(compiled)
    torch.save(compiled.state_dict(), io.BytesIO())


def test_train_is_that_of_the_module():
    class Frozen(nn.Sequential):
        def train(self, mode=True):
            super().train(mode)
            self[1].eval()
            return self

    module = Frozen(nn.Linear(64, 8), nn.BatchNorm1d(8)).eval()
    x, _ = networks.batch()
    compiled = koila.compile(module, x, tile=8)
    assert compiled.train() is compiled
    assert module.training and not module[1].training


def test_max_norm_is_refused_and_the_weights_stay():
    class Renormed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.embedding = nn.Embedding(20, 8, max_norm=1.0)

        def forward(self, i):
            return self.embedding(i)

    module, i = Renormed(), torch.arange(64) % 20
    before = module.embedding.weight.detach().clone()
    for options in ({"tile": 8}, {"budget": "1GiB"}):
        with pytest.raises(koila.CompileError, match=r"writes to 'embedding\.weight'"):
            koila.compile(module, i, **options)
        assert torch.equal(module.embedding.weight, before)
    # The control: a call of it does change them.
    module(i)
    assert not torch.equal(module.embedding.weight, before)


def test_scripting_that_means_something_else():
    class Branch(nn.Module):
        def forward(self, x):
            return x * 2 if torch.jit.is_scripting() else x * 3

    class Unscriptable(Branch):
        """Nor can it be traced."""

        def forward(self, x):
            return x * 7 if torch.jit.is_scripting() else x * float(x.shape[0])

    x = torch.randn(64, 16)
    for options in ({"tile": 8}, {"budget": "1GiB"}):
        compiled = koila.compile(Branch(), x, **options)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), x * 3)
        with pytest.raises(koila.CompileError, match="off by") as caught:
            koila.compile(Unscriptable(), x, **options)
        assert "is_scripting" in caught.value.notes[0]


class Half(nn.Module):
    """A step that computes in bfloat16, and has results and weights of float32."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(0)
        self.first = nn.Conv2d(3, 16, 3, padding=1)
        self.second = nn.Linear(16, 10)

    def scale(self, loss):
        return loss

    def forward(self, x, y):
        with torch.autocast("cpu", torch.bfloat16):
            scores = self.second(self.first(x).relu().mean((2, 3)))
        return self.scale(functional.cross_entropy(scores, y))


class OtherHalf(Half):
    def scale(self, loss):
        return loss * 1.3 if torch.jit.is_tracing() else loss


@pytest.mark.parametrize("tile", [1, 4])
def test_the_check_knows_the_rounding_of_half_types(tile):
    x, y = torch.randn(18, 3, 16, 16), torch.randint(10, (18,))
    module = Half()
    compiled = koila.compile(module, x, y, mode="train", tile=tile)
    loss = compiled.train_step(x, y)
    found = [weight.grad for weight in module.parameters()]
    double = Half().double()
    scores = double.second(double.first(x.double()).relu().mean((2, 3)))
    exact = torch.autograd.grad(functional.cross_entropy(scores, y), list(double.parameters()))
    plain = Half()
    half = torch.autograd.grad(plain(x, y), list(plain.parameters()))
    assert abs(loss - plain(x, y)) < 0.01
    for gradient, other, wanted in zip(found, half, exact, strict=True):
        assert (gradient - wanted).norm() < 1.5 * (other - wanted).norm() + 1e-4 * wanted.norm()
    with pytest.raises(koila.CompileError, match="off by"):
        koila.compile(OtherHalf(), x, y, mode="train", tile=tile)


def watch_samples(monkeypatch):
    """How many samples each call of a network has."""
    seen = []
    forward = nn.Sequential.forward
    monkeypatch.setattr(
        nn.Sequential,
        "forward",
        lambda self, x: seen.append(x.shape[0]) or forward(self, x),
    )
    return seen


def test_the_check_has_a_tile_of_one(monkeypatch):
    x, _ = networks.batch(64)
    seen = watch_samples(monkeypatch)
    koila.compile(networks.mlp(), x, tile=8)
    assert 9 in seen


def test_batches_of_a_multiple():
    class Pairs(nn.Module):
        def forward(self, x):
            if x.shape[0] % 8:
                raise ValueError("eights")
            return x.tanh()

    x = torch.randn(64, 16)
    compiled = koila.compile(Pairs(), x, tile=16)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), x.tanh())
    with pytest.raises(
        koila.CompileError, match="does not run on samples of the example"
    ) as caught:
        koila.compile(Pairs(), x, tile=2)
    assert "batch_dim=" in caught.value.notes[0]


def test_chance_is_named():
    class Noise(nn.Module):
        def __init__(self):
            super().__init__()
            self.count = 0

        @torch.jit.unused
        def draw(self) -> float:
            self.count += 1
            return float(torch.empty(1).uniform_(generator=generator))

        def forward(self, x):
            return x * self.draw()

    generator = torch.Generator()
    with pytest.raises(koila.CompileError):
        koila.compile(Noise(), torch.randn(64, 16), tile=8)


def test_examples_and_buffers_stay():
    class Cache(nn.Module):
        def forward(self, x, cache):
            cache.add_(1)
            return x + 1

    class InPlace(nn.Module):
        def forward(self, x):
            x.mul_(2)
            return x.tanh()

    x, cache = torch.randn(64, 16), torch.zeros(1, 16)
    before = x.clone()
    koila.compile(Cache(), x, cache, tile=8)
    assert not cache.any()
    compiled = koila.compile(InPlace(), x, tile=8)
    assert torch.equal(x, before)
    with torch.no_grad():
        one, other = x.clone(), x.clone()
        torch.testing.assert_close(compiled(one), InPlace()(other))
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("check", [True, False])
def test_buffers_that_are_assigned(check):
    class Counter(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(0)
            self.linear = nn.Linear(16, 4)
            self.register_buffer("count", torch.zeros(1))

        def forward(self, x):
            self.count = self.count + 1
            return self.linear(x) * self.count

    module, other, x = Counter(), Counter(), torch.randn(64, 16)
    compiled = koila.compile(module, x, tile=8, check=check)
    assert module.count.item() == 0
    with torch.no_grad():
        for calls in (1, 2, 3):
            torch.testing.assert_close(compiled(x), other(x))
            assert module.count.item() == calls
        module.count = torch.full((1,), 7.0)
        torch.testing.assert_close(compiled(x), module.linear(x) * 8)


class Counting(Traced):
    def __init__(self, kind):
        super().__init__()
        self.kind = kind
        self.register_buffer("buffer", torch.zeros(1))
        self.number = 0
        self.last = None

    def middle(self, x):
        if self.kind == "buffer":
            self.buffer = self.buffer + 1
        elif self.kind == "number":
            self.number += 1
        else:
            self.last = x.detach()
        return self.first(x)


def test_traces_of_modules_that_change_themselves():
    x, _ = networks.batch()
    for kind, reason in [
        ("buffer", "assigns 'buffer' anew"),
        ("number", "changes 'number'"),
    ]:
        module = Counting(kind).eval()
        with pytest.raises(koila.CompileError, match="cannot express") as caught:
            koila.compile(module, x, tile=8)
        assert reason in caught.value.notes[0]
        assert module.number == 0 and module.buffer.item() == 0
    module = Counting("last").eval()
    with pytest.warns(koila.KoilaWarning, match="forward\\(\\) assigns 'last'"):
        compiled = koila.compile(module, x, tile=8)
    assert module.last is None
    # A call of the module makes it no other one.
    module(x)
    with torch.no_grad():
        torch.testing.assert_close(compiled(x), module(x))


def test_steps_of_files(tmp_path):
    module = networks.mlp()
    x, y = networks.batch()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.jit.script(module).save(tmp_path / "model.pt")
    with warnings.catch_warnings():
        warnings.simplefilter("error", koila.KoilaWarning)
        step = koila.compile(tmp_path / "model.pt", x, y, loss="cross_entropy", tile=8)
        loss = step.train_step(x, y)
    torch.testing.assert_close(loss, functional.cross_entropy(module(x), y).detach())
    wanted = plain_gradients(module, x, y)
    torch.testing.assert_close([p.grad for p in step.parameters()], list(wanted))
    next(step.parameters()).register_hook(lambda gradient: None)
    with pytest.warns(koila.KoilaWarning, match="a weight has hooks"):
        step.train_step(x, y)


def test_traces_of_the_user():
    """With specs alone; a trace is what it is."""
    module = networks.mlp()
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        traced = torch.jit.trace(module, torch.randn(3, 64))
    compiled = koila.compile(traced, "float32[B,64]", batch=64, tile=8)
    x, _ = networks.batch(37)
    with torch.no_grad(), warnings.catch_warnings():
        warnings.simplefilter("error")
        torch.testing.assert_close(compiled(x), module(x))


def test_losses_of_the_original():
    """What runs untiled reads the loss as the compiler does."""
    x, y = networks.batch()
    cases: dict[str, dict] = {
        "cross_entropy(label_smoothing=0.1,ignore_index=3)": {"label_smoothing": 0.1},
        "cross_entropy(reduction=sum)": {"reduction": "sum"},
    }
    for loss, wanted in cases.items():
        module = networks.mlp()
        step = koila.compile(module, x, y, loss=loss, tile=8)
        if "ignore_index" in loss:
            wanted["ignore_index"] = 3
        value = functional.cross_entropy(module(x), y, **wanted)
        torch.testing.assert_close(step.grads(x, y)[0], value.detach())
        module[0].weight.register_hook(lambda gradient: None)
        with pytest.warns(koila.KoilaWarning, match="a weight has hooks"):
            torch.testing.assert_close(step.grads(x, y)[0], value.detach())


def test_the_check_is_no_larger_than_the_example(monkeypatch):
    x, _ = networks.batch(8)
    seen = watch_samples(monkeypatch)
    koila.compile(networks.mlp(), x, tile=1024)
    assert max(seen) == 8


def test_a_tile_has_no_budget():
    x, _ = networks.batch()
    with pytest.raises(koila.CompileError, match="a budget or a tile, not both"):
        koila.compile(networks.mlp(), x, tile=8, budget="1MiB")


def test_guards_raise_with_the_fact():
    module = networks.mlp()
    x, _ = networks.batch()
    compiled = koila.compile(module, x, tile=8, guard="raise")
    with (
        torch.no_grad(),
        pytest.raises(
            koila.CompileError,
            match=r"argument 0 is float64\[64, 64\], and the example was float32",
        ),
    ):
        compiled(x.double())
    with pytest.raises(koila.CompileError, match="grad mode is on"):
        compiled(x)
    with pytest.raises(koila.CompileError, match="guard"):
        koila.compile(module, x, tile=8, guard="maybe")


def test_a_largest_batch_that_is_not_known():
    class Airy(nn.Module):
        def forward(self, x):
            return torch.special.airy_ai(x)

    assert not koila.analyze(Airy(), torch.randn(8, 16)).exact
    with pytest.warns(koila.KoilaWarning, match="may not fit: memory of 'aten::special_airy_ai'"):
        koila.max_batch(Airy(), torch.randn(8, 16), budget="1KiB")


Pair = collections.namedtuple("Pair", "a b")


def test_containers():
    class Sum(nn.Module):
        def forward(self, pair):
            return pair[0] * 2 + pair[1]

    class Split(nn.Module):
        def forward(self, x):
            return Pair(x * 2, x.tanh())

    x, _ = networks.batch()
    compiled = koila.compile(Split(), x, tile=8)
    with torch.no_grad():
        assert type(compiled(x)) is Pair
        whole = koila.compile(Sum(), Pair(x, x))
        torch.testing.assert_close(whole(Pair(x, x)), x * 3)
        torch.testing.assert_close(whole((x, x, x)), x * 3)


def test_compiled_modules_are_compiled_again():
    x, y = networks.batch()
    module = networks.mlp()
    compiled = koila.compile(module, x, tile=8)
    step = koila.compile(compiled, x, y, loss="cross_entropy", tile=16)
    assert step.original is module and step.tile == 16
    assert koila.analyze(compiled, x).peak == 131072


def test_a_module_is_captured_once(monkeypatch):
    counts = collections.Counter()

    def count(owner, name):
        function = getattr(owner, name)

        def counted(*args, **kwargs):
            counts[name] += 1
            return function(*args, **kwargs)

        monkeypatch.setattr(owner, name, counted)

    count(script, "trace_module")
    count(script, "check_hooks")
    count(module_snapshot.Snapshot, "__init__")
    x, y = torch.randn(16, 64), torch.randint(10, (16,))
    step = koila.compile(Traced().eval(), x, y, loss="cross_entropy", tile=4)
    assert step.tile == 4
    assert counts == {"trace_module": 1, "check_hooks": 1, "__init__": 1}
