"""``koila.analyze``, ``koila.compile`` and ``koila.max_batch``."""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import torch
from torch import nn

from koila import _compiler
from koila._capture.frames import warn_user
from koila._capture.inputs import Inputs, Signature, find_symbol
from koila._capture.script import Captured, ModuleCapture
from koila._capture.thread_locks import exclusive
from koila._compile.choose_form import choose
from koila._compile.compiled import CompiledModule, make_module
from koila._compile.specialize_call import Recipe, find_device, specialize
from koila._device import resolve_device
from koila._errors import CompileError
from koila._interrupt import uninterrupted
from koila._report.report import Report

__all__ = ["CompiledModule", "analyze", "compile", "max_batch"]

Program = nn.Module | str | os.PathLike[str]


@exclusive
@uninterrupted
def analyze(
    module: Program,
    *inputs: Any,
    mode: str = "inference",
    loss: str | None = None,
    batch: int | None = None,
    batch_dim: int = 0,
    optimizer: str | None = None,
    grads: str = "present",
    threads: int | None = None,
    device: str | None = None,
    **named: Any,
) -> Report:
    """What a call of ``module``, as a TorchScript program, needs.

    Python holds what a local variable names until it is assigned anew or the
    function ends: without gradients an ``nn.Module`` may so need more.

    ``module`` is an ``nn.Module``, a ScriptModule, or the path of a TorchScript
    file. ``inputs``, and those that are ``named`` as parameters of ``forward``, are
    example values, whose dim ``batch_dim`` is the batch where it has the extent of
    the first tensor's, or specs such as ``"float32[B,3,224,224]"``. ``batch`` asks
    for another batch than the examples have.

    ``mode`` is ``inference``; ``forward-with-grad``, a call that autograd
    records; or ``train``, a step with its backward pass: then ``loss`` is a loss
    by its name in ``torch.nn.functional``, as ``"cross_entropy"``, and the last
    input is its target; without it the module returns the loss.
    ``optimizer="adamw(lr=1e-3)"`` adds its step. ``grads="absent"``: weights
    have no ``.grad`` before the step. ``threads`` defaults to those of torch.
    ``device`` is whose kernels run: ``"cpu"``, ``"cuda"`` for a GPU of which nothing
    more is known, or the name of a card (docs/reference/DeviceProfiles.md); by default
    that where the module and its inputs are.

    Raises CompileError, with the place, for what TorchScript cannot express,
    and for inputs that the module does not take.
    """
    if isinstance(module, CompiledModule):
        module = module.original
    has_target = mode == "train" and bool(loss)
    given = _make_inputs(module, inputs, named, batch, batch_dim, has_target)
    where: torch.device | str = find_device(module, given) if device is None else device
    name = _name(module)

    def run(
        script: torch.jit.ScriptModule | str,
        specs: list[str],
        size: int | None,
        limit: int | None,
        snapshot: str | None,
    ) -> dict[str, Any]:
        # What is asked for one batch, or of a budget, needs no curve.
        whole = size is None and limit is None and snapshot is None
        return _compiler.analyze_script(
            script,
            specs,
            batch=given.batch if size is None else {find_symbol(specs): size},
            mode=mode,
            loss=loss,
            budget=limit,
            optimizer=optimizer,
            grads=grads,
            threads=threads,
            device=where,
            allocator="auto" if whole or snapshot is not None else "exact",
            snapshot=snapshot,
            batches=64 if whole else 0,
            floor=whole,
            name=name,
        )

    def probe(captured: Captured) -> tuple[torch.jit.ScriptModule, list[str], dict[str, Any]]:
        specs = [*captured.specs, *given.target_specs]
        return captured.script, specs, run(captured.script, specs, None, None, None)

    script: torch.jit.ScriptModule | str
    if isinstance(module, nn.Module):
        # A trace has less in it than what is scripted, and may be known exactly
        # where that is not; without a batch neither is.
        capture = ModuleCapture(module, given, trains=mode != "inference")
        script, specs, data = choose(
            capture, probe, lambda found: not given.batch or bool(found[2]["exact"])
        )
    else:
        script, specs = os.fspath(module), [*given.specs, *given.target_specs]
        data = run(script, specs, None, None, None)
    there = where if isinstance(where, torch.device) else None
    return Report(data, functools.partial(run, script, specs), there)


@uninterrupted
def max_batch(
    module: Program,
    *inputs: Any,
    budget: int | str = "auto",
    mode: str = "inference",
    loss: str | None = None,
    batch_dim: int = 0,
    optimizer: str | None = None,
    grads: str = "present",
    threads: int | None = None,
    device: str | None = None,
    **named: Any,
) -> int | None:
    """The largest batch that ``module``, as it is, runs within ``budget``.

    0 if not even one sample fits, None if there is no limit; where the figures
    are not exact a KoilaWarning says why. ``budget`` is a
    number of bytes, a size as ``"6GiB"``, or ``"auto"``: what is free on their device
    now, with parameters and inputs where they are. The other arguments, and errors,
    are those of ``analyze``.
    """
    # One sample: the peak at the size of the examples may not be needed.
    report = analyze(
        module,
        *inputs,
        mode=mode,
        loss=loss,
        batch=1,
        batch_dim=batch_dim,
        optimizer=optimizer,
        grads=grads,
        threads=threads,
        device=device,
        **named,
    )
    found = report.max_batch(budget)
    doubts = [] if report.exact else [d for d in report.data["inexact"] if not d.get("bound")]
    if doubts:
        reason = f"memory of '{doubts[0]['op']}' is not known exactly ({doubts[0]['reason']})"
        if found is None:
            raise CompileError(f"the largest batch is not known: {reason}")
        text = f"{_name(module)}: a batch of {found} may not fit: {reason}"
        warn_user(text)
    return found


@uninterrupted
def compile(
    module: Program,
    *inputs: Any,
    budget: int | str | None = "auto",
    tile: int | None = None,
    loss: str | None = None,
    mode: str | None = None,
    batch: int | None = None,
    batch_dim: int = 0,
    optimizer: str | None = None,
    grads: str = "present",
    random: str = "refuse",
    batchnorm: str = "exact",
    recompute: str = "auto",
    plans: int = 1,
    guard: str = "warn",
    threads: int | None = None,
    device: torch.device | str | None = None,
    check: bool = True,
    **named: Any,
) -> CompiledModule:
    """``module``, with its batch run in tiles that fit ``budget`` bytes.

    The result has the same parameters and is called as before. With ``loss``
    (or ``mode="train"`` for a module that returns its loss) it has
    ``train_step(*inputs, target)``, which leaves in ``.grad`` what one backward
    pass over the whole batch would, and ``grads``, which returns gradients; a
    call then runs the module as it was.

    ``budget`` is a number of bytes, a size as ``"6GiB"``, or ``"auto"``: what is
    free on the device of the inputs now; or give ``tile``, samples per tile, a
    power of two. Of ``"auto"``, gradients that are not there yet are set aside,
    and with ``optimizer`` its state. If memory suffices the batch is not split.
    ``random``, ``batchnorm`` and ``recompute`` allow what is refused otherwise
    (docs/user/Training.md). With ``plans``, 4 at most, there are also those that other
    budgets need, of which ``koila.fit`` takes the best; each is searched for, as long again
    as without. ``guard`` says what a call does that the tiles are not
    made for: ``warn`` and run the original program, or ``raise``. With a ``device``, where
    the module is, inputs are on the CPU and stay there: the device has one tile of them
    at a time, and what is returned is on the CPU again. Other arguments
    are those of ``analyze``.

    Unless ``check=False`` the result is run on part of the example, next to the
    original, before it is returned, within ``budget``, and a KoilaWarning says
    where that is too little; specs leave nothing to run.

    Raises BudgetError, with the smallest budget that works, where no tile fits;
    CompileError, with the place, where samples depend on each other, where
    TorchScript cannot express the module, or where the results differ.
    """
    if mode not in (None, "inference", "train"):
        raise CompileError(f'mode="{mode}": a program is compiled for "inference" or "train"')
    trains = mode == "train" or loss is not None
    if trains and mode == "inference":
        raise CompileError('loss= belongs to mode="train"')
    if isinstance(module, CompiledModule):
        module = module.original
    if tile is not None and budget not in ("auto", None):
        raise CompileError("give a budget or a tile, not both")
    if tile is None and budget is None:
        raise CompileError("give a budget or a tile")
    options = _compiler.CompileOptions(
        mode="train" if trains else "inference",
        loss=loss,
        tile=tile,
        grads=grads,
        optimizer=optimizer,
        random=random,
        batchnorm=batchnorm,
        recompute=recompute,
        plans=plans,
        guard=guard,
        threads=threads,
    )
    name = _name(module)
    there = None if device is None else resolve_device(device)
    source = module if isinstance(module, nn.Module) else _load(os.fspath(module))
    given = _make_inputs(source, inputs, named, batch, batch_dim, trains and bool(loss), there)
    recipe = Recipe(name, options, None if tile else budget, batch_dim, check, there)
    return make_module(source, recipe, specialize(source, given, recipe))


def _make_inputs(
    module: Program,
    values: tuple[Any, ...],
    named: dict[str, Any],
    batch: int | None,
    batch_dim: int,
    has_target: bool,
    device: torch.device | None = None,
) -> Inputs:
    """Raises TypeError for names that are neither options nor parameters."""
    signature = Signature(module) if isinstance(module, nn.Module) else None
    for key in named:
        if signature is not None and not signature.takes(key):
            raise TypeError(
                f"{key!r} is no option, and forward() of {_name(module)} has no such parameter"
            )
    return Inputs(
        values,
        batch,
        batch_dim,
        named=named,
        signature=signature,
        has_target=has_target,
        device=device,
    )


def _name(module: Program) -> str:
    """What errors call the module."""
    kind = type(module).__name__
    if isinstance(module, nn.Module):
        return kind
    if isinstance(module, (str, os.PathLike)):
        return os.fspath(module)
    raise TypeError(f"expected an nn.Module, a ScriptModule or a path, not {kind}")


def _load(path: str) -> torch.jit.ScriptModule:
    if not Path(path).is_file():
        raise CompileError(f"'{path}' is no file")
    return _compiler.load_archive(path)
