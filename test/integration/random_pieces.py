"""The small things that people write into training loops, for random scripts.

Each piece is registered for gaps of a step:
    prepared   after koila.lazy, before the network
    between    after the network, before the loss
    before     after the loss, before backward()
    graded     after backward(), before the step of the optimizer
    after      after it
    end        after the loop
"""

from __future__ import annotations

from random_writer import Unfit, Writer, piece

ANYWHERE = ("between", "before", "graded", "after", "end")

# Texts are printed and not kept: of a printed number the judge knows the last digit.
_SCALAR_READS = (
    *("{0}.item()", "float({0})") * 3,
    "{0}.tolist()",
    "{0}.detach().numpy()",
    "{0}.detach().cpu().numpy().copy()",
    "bool({0} > 0.5)",
    "{0}.detach()",
    "{0}.detach().clone()",
    "{0}.data",
    "math.log1p(abs(float({0})))",
    "{0}.double().item()",
    "torch.isfinite({0}).item()",
    "({0} * 2 + 1).item()",
    "{0}.detach().sqrt().item() if {0} > 0 else 0.0",
    "np.float32({0}.item())",
    "np.asarray({0}.detach())",
    "torch.tensor([{0}, 1.0])",
)
_ROWS_READS = (
    "{0}.mean().item()",
    "{0}.std().item()",
    "{0}.argmax(1).tolist()",
    "{0}.detach().numpy()",
    "{0}.detach()[:3]",
    "{0}.detach()[:, 0]",
    "{0}.detach().clone()",
    "{0}.data[::2]",
    "{0}.softmax(1).max().item()",
    "{0}.norm(dim=1).tolist()",
    "{0}[0].tolist()",
    "{0}[-1, 0].item()",
    "{0}.mean(0).tolist()",
    "{0}.detach().sum(1).numpy()",
    "{0}.amax(1).detach()",
    "{0}.topk(2, dim=1).indices",
    "torch.isfinite({0}).all().item()",
    "bool(({0} > 0).any())",
    "({0} > 0).sum().item()",
    "{0}.detach().abs().max(dim=0).values.numpy()",
    "{0}.var(0).mean().item()",
    "[row.sum().item() for row in {0}[:3]]",
    "sum({0}[:, 0].tolist())",
    "{0}.detach().unbind(1)[0]",
    "{0}.detach()[{0}.detach()[:, 0] > 0].sum().item()",
    "{0}.detach().cumsum(0)[-1].tolist()",
    "{0}.square().sum(1).sqrt().mean().item()",
    "{0}.detach().t()[0].tolist()",
)
_SAMPLES_READS = (
    "{0}.tolist()",
    "{0}.max().item()",
    "{0}.detach().numpy()",
    "{0}.detach()",
    "{0}.argmax().item()",
    "{0}.detach().sort().values[:5].tolist()",
    "{0}[:4].tolist()",
    "{0}.mean().item()",
    "({0} > {0}.mean()).sum().item()",
    "{0}.detach()[{0} > {0}.mean()].sum().item()",
    "{0}.topk(3).indices.tolist()",
)
_SHAPE_READS = (
    "{0}.shape[0]",
    "len({0})",
    "list({0}.shape)",
    "{0}.size(0) // 2 + 1",
    "{0}.numel() / {0}.shape[0]",
    "{0}.shape[0] % 7",
    "f'{{{0}.shape[0]}} samples'",
    "str({0}.dtype)",
    "{0}.dim()",
)
_READS = {"scalar": _SCALAR_READS, "rows": _ROWS_READS, "samples": _SAMPLES_READS}


# Reads.


@piece(*ANYWHERE, weight=8, reads_only=True)
def read(w: Writer) -> None:
    known = w.find("scalar", "scalar", "rows", "samples")
    w.log(known.name, w.rng.choice(_READS[known.kind]).format(known.name))


@piece(*ANYWHERE, weight=3, reads_only=True)
def read_loss(w: Writer) -> None:
    known = w.find("scalar")
    w.log(known.name, w.rng.choice(_SCALAR_READS).format(known.name))


@piece("prepared", *ANYWHERE, reads_only=True)
def read_shape(w: Writer) -> None:
    known = w.find("rows", "input", "labels")
    w.log("shape", w.rng.choice(_SHAPE_READS).format(known.name))


@piece("prepared", "after", reads_only=True)
def read_input(w: Writer) -> None:
    reads = ["x.float().mean().item()", "x[0].tolist()", "x.shape[0] * x.shape[-1]"]
    reads += ["x.detach().numpy()[:2].copy()", "y[:3].tolist()", "y.float().std().item()"]
    reads += ["x.float().flatten(1).norm(dim=1).max().item()", "x.data[:2].clone()"]
    w.log("input", w.rng.choice(reads))


@piece(*ANYWHERE, weight=2, reads_only=True)
def print_loss(w: Writer) -> None:
    name = w.find("scalar").name
    texts = [f'f"{name} {{{name}.item():.4f}}"', f'f"step {{step}}: {{{name}:.3f}}"']
    texts += [f'"{name}", {name}.item()', f'"{name}", round(float({name}), 3)']
    texts += [f'"%d %.4f" % (step, {name})', f'"{name}: {{:.5f}}".format({name}.detach())']
    texts += [f'"{name}", {name}.detach()', f'"{name}", {name}']
    w.line(f"print({w.rng.choice(texts)})")


@piece("between", "before", "after", weight=2, reads_only=True)
def read_accuracy(w: Writer) -> None:
    name = w.find("rows", other=False).name
    if w.plan.task == "classes":
        right = f"({name}.argmax(dim=1) == y)"
        w.log(
            "accuracy",
            w.pick(
                f"{right}.float().mean().item()",
                f"{right}.sum().item() / len(y)",
                f"{right}.sum()",
                f"float({right}.float().mean())",
                f"{right}.numpy()",
            ),
        )
    else:
        w.log("error", f"({name}[:, 0] - y[:, 0]).abs().{w.pick('mean', 'max')}().item()")


@piece("between", "before", "graded", weight=2)
def make_metric(w: Writer) -> None:
    """Recorded here, and read wherever chance has it."""
    found = w.find("rows")
    rows = found.name
    if w.plan.task == "classes" and not found.other and w.chance(0.5):
        w.line(f"hits = ({rows}.argmax(1) == y).float()")
        w.know("hits", "samples")
        w.line(f"right = hits.{w.pick('mean', 'sum')}()")
        w.know("right", "scalar")
    else:
        name = w.fresh("metric")
        what = w.pick("abs().mean()", "detach().square().mean()", "detach().std()", "max()")
        w.line(f"{name} = {rows}.{what}")
        w.know(name, "scalar")


@piece("between", "before", weight=1.5)
def make_rows(w: Writer) -> None:
    found = w.find("rows")
    rows, name = found.name, w.fresh("part")
    made = w.pick(
        f"{rows}.softmax(dim=1)",
        f"{rows}.detach()",
        f"{rows}.detach().clone()",
        f"{rows}[:, :2]",
        f"{rows}.data",
        f"{rows}.view({rows}.size(0), -1)",
        f"torch.sigmoid({rows})",
        f"torch.cat([{rows}, {rows}.square()], dim=1)",
    )
    w.line(f"{name} = {made}")
    w.keep(rows)
    w.know(name, "rows", other=found.other)


@piece("between", "before", "graded", "after", weight=1.5)
def keep_for_the_end(w: Writer) -> None:
    known = w.find("scalar", "rows", "samples")
    name = w.fresh("kept")
    w.before_loop.append(f"{name} = []")
    if known.kind == "scalar":
        part = w.pick("{0}.detach()", "{0}.detach()", "{0}.data", "{0}.detach().clone()")
        if not known.graph:
            part = w.pick(part, "{0}")
        end = w.pick(
            "torch.stack({0}).mean().item()",
            "torch.stack({0}).tolist()",
            "[float(value) for value in {0}]",
        )
    else:
        part = w.pick("{0}.detach()", "{0}.detach()[:4]", "{0}.detach().clone()", "{0}.data")
        if known.kind == "rows":
            part = w.pick(part, "{0}.detach()[:, 0]", "{0}.argmax(1)", "{0}.detach().mean(1)")
        end = w.pick(
            "torch.cat({0}).float().mean(0).tolist()",
            "torch.cat({0})",
            "[value.float().sum().item() for value in {0}]",
            "torch.cat({0}).numpy()",
        )
    w.line(f"{name}.append({part.format(known.name)})")
    w.after_loop.append(f'log("{name}", {end.format(name)})')


@piece("before", "graded", "after", weight=2)
def add_to_total(w: Writer) -> None:
    known = w.find("scalar")
    name, value = w.fresh("running"), known.name
    begin, add, end = w.rng.choice(
        (
            ("0.0", "{0} += {1}.item()", "{0} / steps"),
            ("0.0", "{0} += {1}.item() * len(x)", "{0}"),
            ("0.0", "{0} += {1}.detach()", "float({0})"),
            ("0.0", "{0} += float({1})", "{0}"),
            ("torch.zeros(())", "{0} += {1}.detach()", "{0}.item()"),
            ("torch.zeros(())", "{0}.add_({1}.detach(), alpha=0.5)", "{0}"),
            ("torch.zeros(())", "{0} = 0.9 * {0} + 0.1 * {1}.detach()", "{0}.item()"),
            ("torch.zeros(1)", "{0}[0] += {1}.item()", "{0}.tolist()"),
            ("0", "{0} = {0} + {1}.data", "{0}.item()"),
            ("torch.zeros(())", "{0}.lerp_({1}.detach(), 0.1)", "{0}.item()"),
        )
    )
    w.before_loop.append(f"{name} = {begin}")
    w.line(add.format(name, value))
    w.after_loop.append(f'log("{name}", {end.format(name)})')


@piece("after")
def read_in_next_step(w: Writer) -> None:
    name = w.find("scalar").name
    previous = w.fresh("previous")
    w.before_loop.append(f"{previous} = None")
    lines = [f"if {previous} is not None:", f'    log("{previous}", {previous}.item())']
    (w.start_of_step if w.chance(0.5) else w.after_lazy).extend(lines)
    w.line(f"{previous} = {name}{w.pick('', '.detach()')}")


@piece("before", "graded", "after")
def branch(w: Writer) -> None:
    name = w.find("scalar").name
    choice = w.rng.randrange(5)
    if choice == 0:
        w.before_loop.append('best = float("inf")')
        with w.block(f"if {name}.item() < best:"):
            w.line(f"best = {name}.item()", "best_weights = copy.deepcopy(model.state_dict())")
        w.after_loop.append('log("best", best)')
    elif choice == 1:
        with w.block(f"if torch.isnan({name}):"):
            w.line('raise ValueError("not a number")')
    elif choice == 2:
        with w.block(f"if {name} > 1.0:"):
            w.log("large", "step")
    elif choice == 3:
        w.line(f"assert torch.isfinite({name}), step")
    else:
        with w.block(f"if not math.isfinite({name}):"):
            w.line('log("skipped", step)', "continue")


# What is done to the batch.


@piece("prepared", weight=2)
def change_batch(w: Writer) -> None:
    if not w.plan.floats:
        w.line(
            w.pick(
                "x = x.roll(1, dims=1)",
                "x = torch.where(torch.rand(x.shape) < 0.1, torch.zeros_like(x), x)",
                "x = x.masked_fill(torch.rand_like(x.float()) < 0.1, 0)",
                "x = x.clone()",
                "x = x.flip(1)",
            )
        )
        return
    w.line(
        *w.rng.choice(
            (
                ["x = x + 0.1 * torch.randn_like(x)"],
                ["noise = torch.randn(x.shape)", "x = x + noise * 0.2 / (step + 1)"],
                ["x = F.dropout(x, 0.1)"],
                ["mask = torch.rand_like(x) < 0.2", "x = x.masked_fill(mask, 0.0)"],
                ["mask = torch.bernoulli(torch.full_like(x, 0.8))", "x = x * mask"],
                ["x = x * torch.rand(x.size(0)).view(-1, *[1] * (x.dim() - 1))"],
                ["x = x.clone()", "x[:, 0] = 0.0"],
                ["x = x.data"],
                ["x = x.clone()", "x.mul_(0.5).add_(0.1)"],
                ["x = (x - x.mean()) / x.std()"],
                ["x = x.clamp(-2, 2)"],
                ["x = x / (x.flatten(1).norm(dim=1).view(-1, *[1] * (x.dim() - 1)) + 1)"],
            )
        )
    )


@piece("prepared", weight=1.5)
def write_into_batch(w: Writer) -> None:
    """The user's own data change."""
    if not w.plan.floats:
        raise Unfit
    w.line(
        *w.rng.choice(
            (
                ["x.sub_(x.mean(0))"],
                ["x -= x.mean(dim=0, keepdim=True)", "x /= x.std(0) + 0.1"],
                ["x.add_(0.05 * torch.rand_like(x))"],
                ["x.clamp_(-2.5, 2.5)"],
                ["x.mul_(0.9)"],
                ["x[:, -1] += 0.3"],
                ["x.masked_fill_(torch.rand(x.shape) < 0.1, 0.0)"],
                ["x[0].zero_()"],
                ["x.data.add_(0.1)"],
                ["x[x > 2.0] = 2.0"],
            )
        )
    )
    if w.chance(0.5):
        w.after_loop.append('log("data", data.flatten(1).sum(1).tolist())')


@piece("prepared", weight=0.7)
def mix_samples(w: Writer) -> None:
    if not w.plan.floats:
        raise Unfit
    w.line(f"order = torch.randperm({w.pick('x.size(0)', 'len(x)', 'x.shape[0]')})")
    w.line(w.pick("x = 0.7 * x + 0.3 * x[order]", "x = x[order]; y = y[order]"))


# What is done to results of the network.


@piece("between", weight=1.5)
def change_rows(w: Writer) -> None:
    found = w.find("rows", graph=True)
    name = found.name
    value = w.pick(
        "{0} + 0.1 * torch.randn_like({0})",
        "F.dropout({0}, 0.2)",
        "{0} / (1.0 + 0.1 * step)",
        "{0}.clone()",
        "{0} * torch.rand({0}.size(0), 1)",
        "{0} + 0.1 * torch.rand({0}.shape)",
        "torch.where({0} > 0, {0}, 0.5 * {0})",
        "{0}.masked_fill({0} < -3.0, -3.0)",
    ).format(name)
    w.line(f"{name} = {value}")
    # Only sums and clones are nobody's.
    w.know(name, "rows", True, "clone" in value or " + " in value, found.other)


@piece("between", weight=1.5)
def write_into_rows(w: Writer) -> None:
    name = w.find("rows", graph=True, free=True).name
    w.line(
        *w.rng.choice(
            (
                [f"{name}.mul_(0.8)"],
                [f"{name} += 0.1"],
                [f"{name}[:, 0] += 0.2"],
                [f"column = {name}[:, 1]", "column.mul_(1.5)"],
                [f"{name}.add_(torch.randn_like({name}), alpha=0.1)"],
                [f"{name}.masked_fill_(torch.rand({name}.shape) < 0.1, 0.0)"],
                [f"{name}.detach()[0] += 1.0"],
                [f"half = {name}[: {name}.size(0) // 2]", "half.mul_(0.5)"],
                [f"{name}.clamp_(-4.0, 4.0)"],
                [f"{name}.view(-1)[:3].add_(0.5)"],
            )
        )
    )


@piece("graded", "after")
def write_into_used_rows(w: Writer) -> None:
    """Nothing is to be differentiated any more."""
    name = w.find("rows", "samples", graph=False).name
    if name in ("x", "y"):
        raise Unfit
    with w.block("with torch.no_grad():"):
        w.line(
            w.pick(f"{name}.mul_(2.0)", f"{name}.zero_()", f"{name}[0] += 1.0", f"{name} += 0.5")
        )


@piece("between", "before", "after")
def write_into_copy(w: Writer) -> None:
    found = w.find("rows")
    copy = w.fresh("copied")
    w.line(f"{copy} = {found.name}.detach().clone()")
    w.line(
        w.pick(f"{copy}.relu_()", f"{copy}[:, 0] = 0.0", f"{copy}.add_(1).div_(2)", f"{copy} -= 1")
    )
    if w.chance(0.5):
        w.log(copy, f"{copy}.{w.pick('sum().item()', 'mean(0).tolist()')}")
    w.know(copy, "rows", other=found.other)


# Draws.


@piece("prepared", "between", "before", "graded", weight=1.5)
def own_draw(w: Writer) -> None:
    w.line(
        w.pick(
            'log("draw", torch.rand(3).tolist())',
            'log("draw", torch.randn(()).item())',
            'log("order", torch.randperm(len(x))[:5].tolist())',
            "unused = torch.randn(x.size(0), 4)",
            'log("coin", bool(torch.rand(()) < 0.5))',
            'log("draw", torch.bernoulli(torch.full((4,), 0.5)).tolist())',
            'log("draw", torch.randint(10, (2,)).tolist())',
        )
    )


@piece("between", "before")
def sample_from_rows(w: Writer) -> None:
    name = w.find("rows").name
    choice = w.rng.randrange(3)
    if choice == 0:
        with w.block("with torch.no_grad():"):
            w.line(f"drawn = torch.multinomial({name}.softmax(dim=1), 1)")
        read = w.pick("drawn.float().mean().item()", "drawn.squeeze(1).tolist()")
    elif choice == 1:
        w.line(f"drawn = torch.bernoulli({name}.detach().sigmoid())")
        read = w.pick("drawn.float().mean().item()", "drawn.sum(0).tolist()")
    else:
        w.line(f"drawn = F.gumbel_softmax({name}.detach(), tau=0.5)")
        read = "drawn.mean(0).tolist()"
    if w.chance(0.6):
        w.log("drawn", read)
    else:
        w.after_loop.append(f'log("drawn", {read})')


# Hooks and gradients of results.


@piece("between", weight=0.4)
def hook_on_rows(w: Writer) -> None:
    name = w.find("rows", graph=True).name
    w.line(f'{name}.register_hook(lambda grad: log("grad", grad.norm().item()))')


@piece("between", weight=0.4)
def retain_gradient(w: Writer) -> None:
    name = w.find("rows", graph=True).name
    w.line(f"{name}.retain_grad()")
    w.end_of_step.append(f'log("kept grad", {name}.grad.norm().item())')


# Gradients of weights.


@piece("graded", weight=3)
def use_gradients(w: Writer) -> None:
    w.line(
        *w.rng.choice(
            (
                ["nn.utils.clip_grad_norm_(model.parameters(), 1.0)"],
                ['log("norm", nn.utils.clip_grad_norm_(model.parameters(), 0.5).item())'],
                ["norm = nn.utils.clip_grad_norm_(model.parameters(), 0.7)", 'log("norm", norm)'],
                ["nn.utils.clip_grad_value_(model.parameters(), 0.1)"],
                ['log("grad", model.head.weight.grad.norm().item())'],
                ['log("grad", [p.grad.abs().sum().item() for p in model.parameters()])'],
                ['log("grad", model.head.bias.grad.clone())'],
                ["for p in model.parameters():", "    p.grad.mul_(0.5)"],
                ["for p in model.parameters():", "    p.grad.data.add_(p.data, alpha=0.01)"],
            )
        )
    )


@piece("after")
def read_weights(w: Writer) -> None:
    w.log(
        "weight",
        w.pick(
            "model.head.weight.norm().item()",
            "sum(p.square().sum() for p in model.parameters()).item()",
            "model.head.bias.tolist()",
            "model.head.weight.detach().clone()",
            "copy.deepcopy(model.state_dict())",
        ),
    )


@piece("after", "graded")
def average_weights(w: Writer) -> None:
    if any("average = copy" in line for line in w.before_loop):
        raise Unfit
    w.before_loop.append("average = copy.deepcopy(model)")
    choice = w.rng.randrange(3)
    if choice < 2:
        with w.block("for a, p in zip(average.parameters(), model.parameters()):"):
            w.line(
                w.pick("a.data.mul_(0.9).add_(p.data, alpha=0.1)", "a.data.lerp_(p.data, 0.2)")
                if choice
                else "a.data = 0.9 * a.data + 0.1 * p.data"
            )
    else:
        with w.block("with torch.no_grad():"):
            w.line("for a, p in zip(average.parameters(), model.parameters()):")
            w.line("    a.lerp_(p, 0.1)")
    if w.chance(0.5):
        w.after_loop.append('log("average", evaluate(average, 0))')


@piece("after", "end", weight=0.7)
def evaluate_now(w: Writer) -> None:
    which = w.pick("0", "1", "2")
    if w.chance(0.5):
        w.log("test", f"evaluate(model, {which})")
    else:
        with w.block(w.pick("if step == 1:", "if step % 2 == 0:")):
            w.log("test", f"evaluate(model, {which})")


@piece("end", weight=0.5)
def load_weights(w: Writer) -> None:
    w.line("saved = copy.deepcopy(model.state_dict())", 'log("test", evaluate(model, 0))')
    w.line(w.pick("model.head.weight.data.mul_(0.5)", "nn.init.zeros_(model.head.bias)"))
    w.line('log("test", evaluate(model, 1))', "model.load_state_dict(saved)")
