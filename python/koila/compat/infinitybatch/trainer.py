"""A training of one line, or in pieces."""

from __future__ import annotations

import contextlib
import csv
import json
import pathlib
import warnings
import weakref
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from koila._capture.structure import map_tensors
from koila._device import has_figures
from koila._lazy.api import lazy, run
from koila._plan.announce import last
from koila.compat.infinitybatch import checkpoints, structures
from koila.compat.infinitybatch.callbacks import Callback
from koila.compat.infinitybatch.errors import InfinityBatchError, InfinityBatchWarning
from koila.compat.infinitybatch.structures import count_samples, list_tensors
from koila.compat.infinitybatch.tiles import Tiler, are_apart

__all__ = ["InfinityBatch"]

_Device = torch.device | str | int


def _warn(text: str) -> None:
    warnings.warn(text, InfinityBatchWarning, stacklevel=3)


def _list(item: Any) -> list[Any]:
    """One of a kind, or several."""
    if item is None:
        return []
    if isinstance(item, Mapping):
        return list(item.values())
    return list(item) if isinstance(item, (list, tuple)) else [item]


class _Loader:
    """A dataloader of which is known what it gave last."""

    def __init__(self, loader: Any, owner: InfinityBatch) -> None:
        self._loader, self._owner = loader, owner

    def __iter__(self) -> Iterator[Any]:
        for batch in self._loader:
            self._owner._given = batch
            yield batch

    def __len__(self) -> int:
        return len(self._loader)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)

    @property  # type: ignore[misc]
    def __class__(self) -> Any:  # for isinstance
        return type(self._loader)


class InfinityBatch:
    """Trains with batches that need not fit.

    ``model``, ``optimizer`` and ``criterion`` are each one or, for a network of
    several parts, a list or dict of them: each model is given the inputs, each
    criterion the outputs and targets of its place or name, losses are added up and
    all optimizers step. They can be set once. ``backward_device`` is where batches
    wait, outputs arrive and the loss is computed, the CPU if none is given.

    A batch is recorded by ``koila.lazy`` and runs in tiles at ``backward()``. Where the
    models are on another device than the CPU on which it waits, its tiles go up
    (``koila.lazy(..., device=)``); there outputs of ``batch_``, for a loss of one's own,
    are brought down first, and tiles run twice. ``budget``: of a batch beside weights,
    gradients, optimizer and the batch itself, as of ``koila.lazy``.

    ``separate(batch)`` gives the inputs and targets of what the dataloader gives, and
    ``call(model, inputs)`` calls a model; both may be set. ``keeps_batches`` keeps
    inputs, outputs and targets of all batches on ``backward_device``, which are
    otherwise those of the last one. ``accumulate`` says how many batches there are
    from one step to the next, after which a forgotten ``step`` is noticed.
    """

    def __init__(
        self,
        model: Any = None,
        optimizer: Any = None,
        criterion: Any = None,
        dataloader: Any = None,
        backward_device: _Device | None = None,
        verbose: bool = True,
    ) -> None:
        self.budget: int | str = "auto"
        self.separate: Callable[[Any], tuple[Any, Any]] = structures.separate
        self.call: Callable[[Any, Any], Any] = structures.call_model
        self.scaler: torch.amp.GradScaler | None = None
        self.callbacks: list[Callback] = []
        self.keeps_batches = False
        self.accumulate = 1
        self.verbose_mode = verbose
        #: For each epoch the mean loss, the samples, and the loss of the evaluation.
        self.statistics: list[dict[str, Any]] = []
        self._model: Any = None
        self._optimizer: Any = None
        self._criterion: Any = None
        self._forward_device: torch.device | None = None
        self._dataloader: Any = None
        self._tilers: dict[int, Tiler] = {}
        self._is_streamed = False  # the last batch went up by koila.lazy
        self._given: Any = None
        self._outputs_now: Any = None
        self._loss: Any = None
        self._count = 0
        self._in_epoch = False
        self._steps = 0  # since the last batch
        self._behind = 0  # batches since the last step
        self._announced: set[str] = set()
        self.clearcontainers_()
        self.backward_device = backward_device
        self.model, self.optimizer, self.criterion = model, optimizer, criterion
        self.dataloader = dataloader

    # What is trained.

    @property
    def model(self) -> Any:
        return self._model

    @model.setter
    def model(self, model: Any) -> None:
        if self._may_set("model", model):
            self._model = model
            if model is not None:
                self.updateforwarddevice()

    @property
    def optimizer(self) -> Any:
        return self._optimizer

    @optimizer.setter
    def optimizer(self, optimizer: Any) -> None:
        if self._may_set("optimizer", optimizer):
            self._optimizer = optimizer
            for item in _list(optimizer):
                note = weakref.WeakMethod(self._note_step)
                item.register_step_post_hook(lambda *_, note=note: (note() or (lambda: None))())

    @property
    def optimier(self) -> Any:
        """As the original's README writes it."""
        return self._optimizer

    @optimier.setter
    def optimier(self, optimizer: Any) -> None:
        _warn("`optimier` is taken as `optimizer`")
        self.optimizer = optimizer

    @property
    def criterion(self) -> Any:
        return self._criterion

    @criterion.setter
    def criterion(self, criterion: Any) -> None:
        if self._may_set("criterion", criterion):
            self._criterion = criterion

    def _may_set(self, name: str, value: Any) -> bool:
        if getattr(self, f"_{name}") is None:
            return True
        if value is not getattr(self, f"_{name}"):
            warnings.warn(
                f"`{name}` can be set once, and stays as it is; make another InfinityBatch",
                InfinityBatchWarning,
                stacklevel=3,
            )
        return False

    @property
    def dataloader(self) -> Any:
        """The dataloader that was set, whose last batch is known to ``batch_``."""
        return self._dataloader

    @dataloader.setter
    def dataloader(self, dataloader: Any) -> None:
        self._dataloader = None if dataloader is None else _Loader(dataloader, self)

    # Where.

    @property
    def backward_device(self) -> torch.device:
        return self._backward_device

    @backward_device.setter
    def backward_device(self, device: _Device | None) -> None:
        self._backward_device = torch.device("cpu" if device is None else device)
        self._tilers.clear()
        self.checkdevices_()

    @property
    def forward_device(self) -> torch.device | None:
        return self._forward_device

    def changemodeldevice(self, device: _Device) -> None:
        """Moves the models, and what their optimizers keep for them."""
        moved: dict[Tensor, Tensor] = {}
        for model in _list(self._model):
            before = list(model.parameters())
            model.to(device)
            moved.update(zip(before, model.parameters(), strict=True))
        for optimizer in _list(self._optimizer):
            # Between some devices PyTorch makes other parameters.
            for group in optimizer.param_groups:
                group["params"] = [moved.get(weight, weight) for weight in group["params"]]
            kept = [(moved.get(weight, weight), state) for weight, state in optimizer.state.items()]
            optimizer.state.clear()
            optimizer.state.update(kept)
            optimizer.load_state_dict(optimizer.state_dict())
        self.updateforwarddevice()

    def updateforwarddevice(self) -> None:
        """Looks where the models are, which somebody may have moved."""
        devices = {weight.device for model in _list(self._model) for weight in model.parameters()}
        if not devices:
            if self._model is not None:
                _warn("the model has no parameters; it is taken to be where the batch is")
            self._forward_device = None if self._model is None else self._backward_device
        elif len(devices) > 1:
            raise InfinityBatchError(
                f"the model is on several devices: {', '.join(sorted(map(str, devices)))}"
            )
        else:
            (found,) = devices
            if found != self._forward_device:
                self._tilers.clear()
            self._forward_device = found
        self.checkdevices_()

    def checkdevices_(self) -> None:
        """The original warned here where both devices were one, and saved nothing.
        Batches run in tiles there, too."""

    # What was.

    @property
    def inputs(self) -> list[list[Any]]:
        return self._inputs

    @property
    def outputs(self) -> list[list[Any]]:
        return self._outputs

    @property
    def targets(self) -> list[list[Any]]:
        return self._targets

    @property
    def losses(self) -> list[list[tuple[float, int]]]:
        """``losses[epoch][batch]``: the loss and the number of samples."""
        return self._losses

    @property
    def epochs(self) -> int:
        """How many are over."""
        return len(self.statistics)

    @property
    def tile(self) -> int | None:
        """Samples a tile of the last batch, where the model is on another device;
        elsewhere ``koila.last().tile`` says it."""
        if self._is_streamed:
            how = last()
            return None if how is None else how.tile
        return next((tiler.tile for tiler in reversed(self._tilers.values())), None)

    def clearcontainers_(self) -> None:
        """Forgets batches and losses."""
        self._inputs: list[list[Any]] = []
        self._outputs: list[list[Any]] = []
        self._targets: list[list[Any]] = []
        self._losses: list[list[tuple[float, int]]] = []

    def epochstart_(self) -> None:
        """A new epoch in all containers."""
        if not self.keeps_batches:
            for container in (self._inputs, self._outputs, self._targets):
                for epoch in container:
                    epoch.clear()
        for container in (self._inputs, self._outputs, self._targets, self._losses):
            container.append([])

    def _keep(self, inputs: Any, targets: Any) -> None:
        home = self._backward_device
        for container, item in (
            (self._inputs, inputs),
            (self._outputs, self._outputs_now),
            (self._targets, targets),
        ):
            if not self.keeps_batches:
                container[-1].clear()
            container[-1].append(map_tensors(lambda tensor: tensor.detach().to(home), run(item)))

    # Training.

    def __call__(self, num_epochs: int) -> None:
        self.train(num_epochs)

    def train(self, num_epochs: int, evaluate: Any = None) -> None:
        """So many epochs, or fewer where a callback returns True. After each one
        the models are evaluated on the batches of ``evaluate``, if given."""
        self._need("model", "optimizer", "criterion", "dataloader")
        self._call_back("train start")
        for epoch in range(num_epochs):
            self._print(f"Epoch {epoch + 1} of {num_epochs}.")
            self.epoch()
            if evaluate is not None:
                found = self.eval(evaluate)
                self.statistics[-1]["evaluation"] = found["loss"]
            if self._call_back("epoch end"):
                break
        self._call_back("train end")

    def epoch(self) -> None:
        """All batches of the dataloader once. Callbacks of epochs are called by
        ``train``."""
        self._need("model", "optimizer", "criterion", "dataloader")
        self.updateforwarddevice()
        self.epochstart_()
        self._call_back("epoch start")
        samples = batches = 0
        self._in_epoch = True
        try:
            for batch in self._dataloader:
                inputs, targets = self.separate(batch)
                count = count_samples(inputs)
                self._print(f"-- batch {batches}: {samples} samples before, {count} now.", end="\r")
                inputs, targets = self._record(inputs, targets)
                self._forward(inputs)
                self._compare(targets)
                self.backward()
                batches, samples = batches + 1, samples + count
                self._losses[-1].append((float(self._loss.detach()), count))
                self._keep(inputs, targets)
                if batches % self.accumulate == 0:
                    self.step()
                    self.zero_grad()
                self._loss = None
                if self._call_back("batch end"):
                    break
            if batches % self.accumulate:
                self.step()
                self.zero_grad()
        finally:
            self._in_epoch = False
            self._outputs_now = None
        if not batches:
            raise InfinityBatchError("the dataloader gave no batch")
        mean = sum(value * count for value, count in self._losses[-1]) / samples
        self.statistics.append({"loss": mean, "samples": samples, "batches": batches})
        self._print(f"-- epoch of {batches} batches and {samples} samples: loss {mean:.6g}.")

    def batch_(self, inputs: Any = None) -> Any:
        """The outputs for a batch, for a loss of one's own. Without ``inputs`` it is
        the batch that ``dataloader`` gave last."""
        self._need("model")
        if inputs is None:
            if self._given is None:
                raise InfinityBatchError("`batch_` has no inputs, and the dataloader gave none yet")
            if "inputs" not in self._announced:
                _warn("`batch_` is given the inputs; without, they are the dataloader's last ones")
                self._announced.add("inputs")
            inputs = self.separate(self._given)[0]
        if torch.is_grad_enabled() and not self._in_epoch:
            self._look_back()
        if self._forward_device is None:
            self.updateforwarddevice()
        (inputs,) = self._record(inputs, is_compared=False)
        return self._forward(inputs)

    def loss(self, targets: Any = None) -> None:
        """The loss of the last outputs, for ``backward``. Without ``targets`` they are
        those of the batch that ``dataloader`` gave last."""
        self._need("criterion")
        if self._outputs_now is None:
            raise InfinityBatchError("`loss` comes after `batch_`, of whose outputs it is")
        if targets is None:
            if self._given is None:
                raise InfinityBatchError("`loss` has no targets, and the dataloader gave none yet")
            targets = self.separate(self._given)[1]
        self._compare(map_tensors(lambda tensor: tensor.to(self._home()), targets))

    def backward(self) -> None:
        """The gradients of the last loss."""
        if self._loss is None:
            _warn("`backward` comes after `loss`, of which there is none")
            return
        loss = self._loss if self.scaler is None else self.scaler.scale(self._loss)
        loss.backward()
        if not self._in_epoch:
            if not self._losses:
                self.epochstart_()
            self._losses[-1].append((float(self._loss.detach()), self._count))
            self._loss = None

    def step(self) -> None:
        """Of all optimizers."""
        self._need("optimizer")
        for optimizer in _list(self._optimizer):
            if self.scaler is None:
                optimizer.step()
            else:
                self.scaler.step(optimizer)
        if self.scaler is not None:
            self.scaler.update()
        self._note_step()

    def zero_grad(self) -> None:
        """Of all optimizers and models."""
        for item in (*_list(self._optimizer), *_list(self._model)):
            item.zero_grad()

    def _home(self) -> torch.device:
        """Where the loss is computed."""
        apart = self._forward_device is not None and are_apart(
            self._forward_device, self._backward_device
        )
        return (
            self._backward_device
            if apart or self._forward_device is None
            else (self._forward_device)
        )

    def _record(self, *items: Any, is_compared: bool = True) -> Any:
        """Inputs, and targets that the outputs are to be ``is_compared`` with here."""
        self._count = count_samples(items[0])
        home, forward = self._home(), self._forward_device
        moved = [map_tensors(lambda tensor: tensor.to(home), item) for item in items]
        assert forward is not None
        is_apart = are_apart(forward, self._backward_device)
        is_from_host = home.type == "cpu" != forward.type and has_figures(forward)
        self._is_streamed = is_apart and is_compared and is_from_host
        if self._is_streamed:
            return self._stream(moved, forward)
        if is_apart:
            return moved
        made = lazy(*moved, batch=0, budget=self.budget)
        return [made] if len(moved) == 1 else made

    def _stream(self, items: list[Any], device: torch.device) -> list[Any]:
        """These, with the samples in them to go to the device in tiles."""
        batches = [tensor for tensor in list_tensors(items) if tensor.dim()]
        made = lazy(*batches, batch=0, budget=self.budget, device=device)
        found = iter(made if len(batches) > 1 else [made])
        return [
            map_tensors(lambda tensor: next(found) if tensor.dim() else tensor.to(device), item)
            for item in items
        ]

    def _forward(self, inputs: Any) -> Any:
        models = self._model
        if isinstance(models, Mapping):
            found: Any = {name: self._run(model, inputs) for name, model in models.items()}
        elif isinstance(models, (list, tuple)):
            found = tuple(self._run(model, inputs) for model in models)
        else:
            found = self._run(models, inputs)
        self._outputs_now = found
        self._loss = None
        return found

    def _run(self, model: nn.Module, inputs: Any) -> Any:
        forward, home = self._forward_device, self._backward_device
        assert forward is not None
        if self._is_streamed or not are_apart(forward, home):
            return self.call(model, inputs)
        tiler = self._tilers.get(id(model))
        if tiler is None or tiler.call is not self.call or tiler.budget != self.budget:
            tiler = self._tilers[id(model)] = Tiler(model, self.call, forward, home, self.budget)
        if tiler.is_apart(inputs, self._count):
            return tiler.run(inputs, self._count)
        self._announce(
            "what this model gives for a sample depends on the others of the batch, as of batch "
            "normalisation in training mode; the batch runs whole"
        )
        tiler.tile = None
        outputs = self.call(model, map_tensors(lambda tensor: tensor.to(forward), inputs))
        return map_tensors(lambda tensor: tensor.to(home), outputs)

    def _compare(self, targets: Any) -> None:
        criteria, outputs = self._criterion, self._outputs_now
        if isinstance(criteria, Mapping):
            parts = [criteria[name](outputs[name], _part(targets, name)) for name in criteria]
        elif isinstance(criteria, (list, tuple)):
            parts = [
                criterion(outputs[place], _part(targets, place))
                for place, criterion in enumerate(criteria)
            ]
        else:
            parts = [criteria(outputs, targets)]
        self._loss = sum(parts[1:], parts[0])

    def _call_back(self, event: str) -> bool:
        return any([callback(event, self) is True for callback in self.callbacks])

    # Evaluation.

    def eval(
        self, dataloader: Any = None, metrics: Mapping[str, Callable[[Any, Any], Any]] | None = None
    ) -> dict[str, float]:
        """The mean loss of batches, in evaluation mode and without gradients, and the
        means of ``metrics``, each of which is called with outputs and targets. The
        models are in their modes again afterwards."""
        self._need("model", "criterion", *(() if dataloader is not None else ("dataloader",)))
        self.updateforwarddevice()
        totals: dict[str, float] = {}
        samples = 0
        kept = self._loss, self._outputs_now
        with self._evaluating(), torch.no_grad():
            for batch in self._dataloader if dataloader is None else dataloader:
                inputs, targets = self._record(*self.separate(batch))
                count = self._count
                self._forward(inputs)
                self._compare(targets)
                found = {"loss": float(self._loss)}
                for name, metric in (metrics or {}).items():
                    found[name] = float(metric(self._outputs_now, targets))
                for name, value in found.items():
                    totals[name] = totals.get(name, 0.0) + value * count
                samples += count
        self._loss, self._outputs_now = kept
        if not samples:
            raise InfinityBatchError("the dataloader gave no batch")
        return {name: total / samples for name, total in totals.items()}

    @contextlib.contextmanager
    def _evaluating(self) -> Iterator[None]:
        modules = [module for model in _list(self._model) for module in model.modules()]
        modes = [module.training for module in modules]
        try:
            for model in _list(self._model):
                model.eval()
            yield
        finally:
            for module, mode in zip(modules, modes, strict=True):
                module.training = mode

    # Checkpoints.

    def checkpoint(self, path: Any = None, **others: Any) -> dict[str, Any]:
        """All that the training goes on from, also in a file: models, optimizers,
        random generators, losses, and ``others`` by name: schedulers, samplers,
        generators. Raises InfinityBatchError within an epoch."""
        if self._in_epoch:
            raise InfinityBatchError(
                "a checkpoint is made between epochs: what a dataloader has still to give is known "
                "to it alone"
            )
        state = {
            "models": [model.state_dict() for model in _list(self._model)],
            "optimizers": [optimizer.state_dict() for optimizer in _list(self._optimizer)],
            "scaler": None if self.scaler is None else self.scaler.state_dict(),
            "others": {name: checkpoints.get_state(name, item) for name, item in others.items()},
            "losses": [[list(entry) for entry in epoch] for epoch in self._losses],
            "statistics": [dict(entry) for entry in self.statistics],
            "random": checkpoints.get_random_state(),
        }
        if path is not None:
            torch.save(state, path)
        return state

    def resume(self, state: Any, **others: Any) -> None:
        """Goes on from a checkpoint, or a file with one; ``others`` are those that it
        was made with."""
        if not isinstance(state, Mapping):
            state = torch.load(state, weights_only=True, map_location="cpu")
        self._need("model", "optimizer")
        missing = sorted(state["others"].keys() ^ others.keys())
        if missing:
            raise InfinityBatchError(f"the checkpoint and this call differ in {', '.join(missing)}")
        for kind, items in (("models", self._model), ("optimizers", self._optimizer)):
            if len(state[kind]) != len(_list(items)):
                raise InfinityBatchError(
                    f"the checkpoint has {len(state[kind])} {kind}, and this {len(_list(items))}"
                )
            for item, part in zip(_list(items), state[kind], strict=True):
                item.load_state_dict(part)
        if (self.scaler is None) != (state["scaler"] is None):
            raise InfinityBatchError("one of the checkpoint and this has a scaler")
        if self.scaler is not None:
            self.scaler.load_state_dict(state["scaler"])
        for name, item in others.items():
            checkpoints.set_state(name, item, state["others"][name])
        self.clearcontainers_()
        for losses in state["losses"]:
            self.epochstart_()
            self._losses[-1].extend((value, count) for value, count in losses)
        self.statistics = [dict(entry) for entry in state["statistics"]]
        checkpoints.set_random_state(state["random"])

    def save_statistics(self, path: Any) -> None:
        """The losses of all batches, as ``.csv`` or ``.json`` by the file's name."""
        path = pathlib.Path(path)
        rows = [
            {"epoch": epoch, "batch": batch, "loss": value, "samples": count}
            for epoch, losses in enumerate(self._losses)
            for batch, (value, count) in enumerate(losses)
        ]
        if path.suffix == ".json":
            path.write_text(json.dumps({"batches": rows, "epochs": self.statistics}, indent=1))
        elif path.suffix == ".csv":
            with open(path, "w", newline="") as file:
                writer = csv.DictWriter(file, ("epoch", "batch", "loss", "samples"))
                writer.writeheader()
                writer.writerows(rows)
        else:
            raise InfinityBatchError(f"{path.name}: statistics are written as .csv or .json")

    # What was forgotten.

    def _note_step(self) -> None:
        self._steps += 1

    def _look_back(self) -> None:
        """Before a batch in a loop of the user's own."""
        stepped, self._steps = self._steps > 0, 0
        if not self._has_gradients():
            self._behind = 0
            return
        if stepped:
            self._behind = 0
            self._announce(
                "`step` was not followed by `zero_grad`: the gradients of this batch are added to "
                "those of the last"
            )
            return
        self._behind += 1
        if self._behind >= self.accumulate:
            self._announce(
                f"no `step` after {self.accumulate} batch(es) with gradients; if more are to add "
                "up, set `accumulate` to their number"
            )

    def _has_gradients(self) -> bool:
        return any(
            weight.grad is not None and bool(weight.grad.any())
            for model in _list(self._model)
            for weight in model.parameters()
        )

    def _announce(self, text: str) -> None:
        if text not in self._announced:
            self._announced.add(text)
            warnings.warn(text, InfinityBatchWarning, stacklevel=4)

    def _need(self, *names: str) -> None:
        for name in names:
            if getattr(self, f"_{name}") is None:
                raise InfinityBatchError(f"`{name}` is not set")

    def _print(self, text: str, end: str = "\n") -> None:
        if self.verbose_mode:
            print(text, end=end, flush=True)


def _part(targets: Any, name: Any) -> Any:
    """The targets of one criterion; one tensor is for all."""
    return targets if isinstance(targets, Tensor) else targets[name]
