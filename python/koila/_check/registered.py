"""The rules that are registered for an operator against runs of it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch

from koila._capture.compare import compare
from koila._check.facts import have_strides
from koila._check.findings import Finding, OperatorCheck, Unanswered, show_events
from koila._operators.answers import as_results, ask_backward, ask_batch, ask_forward, ask_saved
from koila._operators.batch import BatchArgument
from koila._operators.calls import Call, TensorSpec, find_calls, parse_inputs
from koila._operators.rules import OperatorRules
from koila.memory import CountedMemory, record_events

__all__ = ["check_registered"]

# One, two that differ, and a number that no power of two divides.
_BATCHES = (1, 2, 3, 7)


def check_registered(rules: OperatorRules, inputs: Sequence[str]) -> OperatorCheck:
    """As ``koila.check_op``. Each call runs with 1, 2, 3 and 7 samples, and also with a
    tensor that is transposed in memory, and with one that is expanded; the backward pass
    with a gradient in rows, and with an expanded one."""
    calls = [parse_inputs(rules.operator, inputs)] if inputs else find_calls(rules)
    calls += [other for call in calls for other in call.vary() if _takes(rules, other)]
    made = OperatorCheck(rules.name, list(map(str, calls)))
    checks: dict[str, Callable[[_Run], Iterator[str | None]]] = {
        "shape": _check_shape,
        "storage": _check_storage,
        "batch": _check_batch,
        "forward": _check_forward,
        "saved": _check_saved,
        "backward": _check_backward,
    }
    kinds = rules.get_kinds()
    for kind, check in checks.items():
        finding = Finding(kind)
        made.findings.append(finding)
        if kind not in ("shape", "storage", *kinds):
            finding.note = "not registered: not known to koila"
            continue
        for call in calls:
            for samples in _BATCHES if call.has_batch else (1,):
                run = _Run(rules, call, samples)
                finding.hold(check(run), run)
    return made


def _takes(rules: OperatorRules, call: Call) -> bool:
    try:
        _Run(rules, call, 3).run()
    except Exception:
        return False
    return True


class _Run:
    """One call with a number of samples."""

    def __init__(self, rules: OperatorRules, call: Call, samples: int) -> None:
        self.rules = rules
        self.call = call
        self.samples = samples
        self.arguments = call.make(samples)

    def __str__(self) -> str:
        return f"{self.call}; B = {self.samples}" if self.call.has_batch else str(self.call)

    def run(self, arguments: Sequence[Any] | None = None) -> list[torch.Tensor]:
        """The results, of which autograd records nothing."""
        with torch.no_grad():
            return self.record(self.arguments if arguments is None else arguments)

    def record(self, arguments: Sequence[Any]) -> list[torch.Tensor]:
        positional, named = self.rules.bind(arguments)
        return as_results(self.rules.operator(*positional, **named))

    def describe(self, values: Sequence[Any]) -> list[Any]:
        """Meta tensors in place of tensors, as rules see them."""
        return [
            torch.empty_strided(v.shape, v.stride(), dtype=v.dtype, device="meta")
            if isinstance(v, torch.Tensor)
            else v
            for v in values
        ]

    def make_leaves(self) -> list[Any]:
        """The arguments; gradients flow to those of real or complex numbers."""
        return [
            v.requires_grad_()
            if isinstance(v, torch.Tensor) and (v.is_floating_point() or v.is_complex())
            else v
            for v in self.call.make(self.samples)
        ]


def _describe_tensor(tensor: torch.Tensor) -> str:
    dtype = str(tensor.dtype).removeprefix("torch.")
    return f"{dtype}{list(tensor.shape)} with strides {list(tensor.stride())}"


def _check_shape(run: _Run) -> Iterator[str | None]:
    rule: Any = run.rules.shape or run.rules.operator
    positional, named = run.rules.bind(run.describe(run.arguments))
    try:
        with torch.no_grad():
            said = as_results(rule(*positional, **named))
    except NotImplementedError as error:
        if run.rules.shape is not None:
            raise
        raise Unanswered(
            "not registered, and the operator has no fake kernel: not known to koila"
        ) from error
    results = run.run()
    if len(said) != len(results):
        yield f"{len(said)} results in place of {len(results)}"
        return
    for at, (tensor, result) in enumerate(zip(said, results, strict=True)):
        same = tensor.shape == result.shape and tensor.dtype == result.dtype
        if same and have_strides(result, tensor.stride()):
            yield None
        else:
            yield (
                f"says that result {at} is {_describe_tensor(tensor)}, "
                f"and it is {_describe_tensor(result)}"
            )


def _check_storage(run: _Run) -> Iterator[str | None]:
    for at, (result, view) in enumerate(zip(run.run(), run.rules.storage, strict=True)):
        shared = next(
            (
                position
                for position, value in enumerate(run.arguments)
                if isinstance(value, torch.Tensor)
                and value.untyped_storage().data_ptr() == result.untyped_storage().data_ptr()
                and result.untyped_storage().nbytes() > 0
            ),
            None,
        )
        if shared == view or result.untyped_storage().nbytes() == 0:
            yield None
            continue
        names = [
            "a new tensor" if p is None else f"a view of '{run.rules.parameters[p].name}'"
            for p in (view, shared)
        ]
        yield f"says that result {at} is {names[0]}, and it is {names[1]}"


def _check_batch(run: _Run) -> Iterator[str | None]:
    values = [
        BatchArgument(spec.batch, len(spec.dims)) if isinstance(spec, TensorSpec) else spec
        for spec in run.call.arguments
    ]
    if not run.call.has_batch:
        return
    dims = ask_batch(run.rules, values)
    if any(isinstance(dim, str) for dim in dims):
        raise Unanswered(
            f"says that it mixes samples: {next(d for d in dims if isinstance(d, str))}"
        )
    whole = run.run()
    for at, (dim, result) in enumerate(zip(dims, whole, strict=True)):
        if isinstance(dim, int) and (dim >= result.dim() or result.shape[dim] % run.samples):
            is_so = _describe_tensor(result)
            yield f"says that dim {dim} of result {at} is the batch, and it is {is_so}"
            return
    pieces = [run.run(piece) for piece in _split(run)]
    for at, (dim, result) in enumerate(zip(dims, whole, strict=True)):
        parts = [piece[at] for piece in pieces]
        if isinstance(dim, int):
            problem = compare(torch.cat(parts, dim), result)
        else:
            problem = next(filter(None, (compare(part, result) for part in parts)), None)
        yield (
            f"result {at} of samples alone is another than together: {problem}" if problem else None
        )


def _split(run: _Run) -> Iterator[list[Any]]:
    """The arguments with the first sample, and with the others."""
    bounds = [0, 1, run.samples] if run.samples > 1 else [0, 1]
    for start, stop in itertools.pairwise(bounds):
        yield [
            value.narrow(spec.batch, start, stop - start)
            if isinstance(spec, TensorSpec) and spec.batch is not None
            else value
            for spec, value in zip(run.call.arguments, run.arguments, strict=True)
        ]


def _count_results(results: Sequence[torch.Tensor], rules: OperatorRules) -> int:
    return sum(
        result.untyped_storage().nbytes()
        for result, view in zip(results, rules.storage, strict=True)
        if view is None
    )


def _check_forward(run: _Run) -> Iterator[str | None]:
    # What the first run of an operator sets up stays.
    results = run.run()
    own = _count_results(results, run.rules)
    told = run.describe(results)
    del results
    trace = ask_forward(run.rules, torch.get_num_threads(), run.describe(run.arguments), told)
    said = own + trace.get_transient()
    with CountedMemory() as memory:
        results, events = record_events(run.run)
        found = memory.get_peak()
    del results
    yield (
        None
        if said == found
        else (
            f"says that {said} bytes are held at the worst moment, results among them, "
            f"and {found} are (blocks: says {show_events(trace.get_events())}; "
            f"there are {show_events(events)})"
        )
    )


def _check_saved(run: _Run) -> Iterator[str | None]:
    leaves = run.make_leaves()
    if any(isinstance(leaf, torch.Tensor) and 0 in leaf.stride() for leaf in leaves):
        return  # a copy of it, which the graph may keep alone, is not expanded
    if not any(isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves):
        raise Unanswered("no argument has a gradient")
    results = run.record(leaves)
    if not any(result.requires_grad for result in results):
        raise Unanswered("autograd records nothing of it")
    answer = ask_saved(run.rules, run.describe(leaves), run.describe(results))
    kept = [leaves[at] for at in answer["arguments"]] + [results[at] for at in answer["results"]]
    storages = {t.untyped_storage().data_ptr(): t.untyped_storage().nbytes() for t in kept}
    said = sum(storages.values()) + answer["bytes"]
    del kept, results
    with CountedMemory() as memory:
        # Leaves live as long as their place in the graph.
        arguments = [
            leaf.clone(memory_format=torch.preserve_format)
            if isinstance(leaf, torch.Tensor)
            else leaf
            for leaf in leaves
        ]
        results = run.record(arguments)
        nodes = [result.grad_fn for result in results]
        del arguments, results
        found = memory.get_live()
        del nodes
    yield None if said == found else f"says that autograd keeps {said} bytes, and it keeps {found}"


def _check_backward(run: _Run) -> Iterator[str | None]:
    yield from _check_gradients(run, torch.ones_like)
    # As a sum hands it on.
    yield from _check_gradients(run, lambda result: result.new_ones(()).expand(result.shape))


def _check_gradients(
    run: _Run, make: Callable[[torch.Tensor], torch.Tensor]
) -> Iterator[str | None]:
    leaves = run.make_leaves()
    results = run.record(leaves)
    if not any(result.requires_grad for result in results):
        raise Unanswered("autograd records nothing of it")
    arrived = [make(r.detach()) if r.requires_grad else None for r in results]
    wanted = [isinstance(leaf, torch.Tensor) and leaf.requires_grad for leaf in leaves]
    described = [None if g is None else run.describe([g])[0] for g in arrived]
    said = ask_backward(
        run.rules,
        torch.get_num_threads(),
        described,
        run.describe(leaves),
        run.describe([r.detach() for r in results]),
        wanted,
    )
    asked = [leaf for leaf, is_wanted in zip(leaves, wanted, strict=True) if is_wanted]
    outputs = [r for r in results if r.requires_grad]
    incoming = [g for g in arrived if g is not None]

    def differentiate(outputs: Sequence[torch.Tensor]) -> tuple[torch.Tensor | None, ...]:
        return torch.autograd.grad(outputs, asked, incoming, allow_unused=True)

    differentiate(outputs)
    outputs = [r for r in run.record(leaves) if r.requires_grad]
    del results
    with CountedMemory() as memory:
        gradients = differentiate(outputs)
        found = memory.get_peak()
    if said["peak"] == found:
        yield None
    else:
        yield f"says that {said['peak']} bytes are held in the backward pass, and {found} are"
    answers = [g for g, is_wanted in zip(said["gradients"], wanted, strict=True) if is_wanted]
    names = [p.name for p, is_wanted in zip(run.rules.parameters, wanted, strict=True) if is_wanted]
    for name, answer, gradient in zip(names, answers, gradients, strict=True):
        told, is_so = _describe_answer(answer, gradient, arrived)
        yield (
            None
            if is_so
            else f"says that the gradient of '{name}' is {told}, and it is "
            + ("None" if gradient is None else _describe_gradient(gradient, arrived))
        )


def _describe_answer(
    answer: dict[str, Any] | None,
    gradient: torch.Tensor | None,
    arrived: Sequence[torch.Tensor | None],
) -> tuple[str, bool]:
    """What a rule says of a gradient, and whether it is so."""
    if answer is None:
        return "None", gradient is None
    at = answer.get("same", answer.get("view"))
    tensor = answer.get("tensor")
    told = f"a new tensor {tensor['dims']} with strides {tensor['strides']}" if tensor else ""
    if at is not None:
        told = (
            f"a view of the gradient of result {at}" if tensor else f"the gradient of result {at}"
        )
    if gradient is None:
        return told, False
    fits = tensor is None or (
        tensor["dims"] == list(gradient.shape) and have_strides(gradient, tensor["strides"])
    )
    return told, fits and _find_shared(gradient, arrived) == at


def _find_shared(gradient: torch.Tensor, arrived: Sequence[torch.Tensor | None]) -> int | None:
    place = gradient.untyped_storage().data_ptr()
    for at, given in enumerate(arrived):
        if given is not None and given.untyped_storage().data_ptr() == place:
            return at
    return None


def _describe_gradient(gradient: torch.Tensor, arrived: Sequence[torch.Tensor | None]) -> str:
    at = _find_shared(gradient, arrived)
    kind = "a new tensor" if at is None else f"of the storage of the gradient of result {at},"
    return f"{kind} {_describe_tensor(gradient)}"
