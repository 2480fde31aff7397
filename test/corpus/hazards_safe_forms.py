"""Look-alikes of the hazards in what surrounds the operators: sizes, forms of
arguments and results, control flow and writes that keep samples apart."""

from typing import Dict, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from hazard_registry import ROWS, SERIES, safe

# ---------------------------------------------------------------------------
# Sizes


@safe(ROWS)
def divided_by_features(self, x):
    return self.encode(x) / x.size(1)


@safe(SERIES)
def divided_by_steps(self, x):
    return self.encode(x).sum(1) / x.size(1), x * x.size(-1) ** -0.5


@safe(SERIES, parts=lambda: {"places": torch.randn(9, 6)})
def cut_to_steps(self, x):
    return self.encode(x) + self.places[: x.size(1)]


@safe(SERIES)
def causal_mask(self, x):
    mask = torch.ones(x.size(1), x.size(1)).tril() == 0
    h = self.encode(x)
    scores = (h @ h.transpose(1, 2)).masked_fill(mask, float("-inf"))
    return scores.softmax(-1) @ h


@safe(ROWS)
def fresh_tensors(self, x):
    """The number of samples as an extent, and nothing else."""
    h = self.encode(x)
    return (
        h + torch.zeros(x.size(0), 6),
        h * torch.ones(x.size(0), 1),
        h + h.new_full((h.size(0), 6), 2.0),
        torch.ones_like(h) - h,
    )


@safe(ROWS, scripted=True)
def sizes_in_views(self, x):
    b, c = x.shape
    return self.encode(x.view(b, 2, c // 2).flatten(1).reshape(b, -1))


@safe(ROWS, scripted=True)
def size_of_no_use(self, x):
    """The number of samples is divided out again."""
    n = x.numel() // x.size(0)
    return self.encode(x) * n


# ---------------------------------------------------------------------------
# Forms of results


@safe(ROWS)
def arguments_returned(self, x):
    return x, self.encode(x), x


@safe(ROWS, parts=lambda: {"weight": torch.randn(4, 8)})
def result_without_batch(self, x):
    return self.encode(x), self.encode(self.weight), self.weight


@safe(ROWS)
def dict_of_results(self, x):
    h = self.encode(x)
    return {"out": h.sum(1), "features": h}


@safe(ROWS)
def nested_results(self, x):
    h = self.encode(x)
    return h, (h.sin(), [h.cos(), x * 2])


@safe(ROWS, scripted=True, careful="a list that a loop fills")
def list_of_results(self, x):
    h = self.encode(x)
    results: List[Tensor] = []
    for power in range(3):
        results.append(h ** (power + 1))
    return results


@safe(ROWS, scripted=True)
def dict_scripted(self, x) -> Dict[str, Tensor]:
    h = self.encode(x)
    results = {"first": h}
    results["second"] = h.exp()
    return results


@safe(ROWS, scripted=True)
def number_returned(self, x):
    return self.encode(x), x.size(1), 0.5


@safe(ROWS, scripted=True)
def nothing_returned(self, x) -> Tuple[Tensor, Optional[Tensor]]:
    return self.encode(x), None


@safe(ROWS)
def integers_returned(self, x):
    h = self.encode(x)
    return h.argmax(1), h > 0, (h * 10).long()


@safe("float64[B,8]")
def doubles_returned(self, x):
    return self.encode(x.float()).double() + x[:, :6]


# ---------------------------------------------------------------------------
# Forms of arguments


@safe(ROWS, "float32[6]", "float32[5,6]")
def shared_arguments(self, x, scale, keys):
    """Arguments without a batch; each sample meets all keys."""
    h = self.encode(x) * scale
    return (h @ keys.t()).softmax(1) @ keys


@safe(ROWS, "float32[1,6]")
def shared_row(self, x, row):
    return self.encode(x) + row, row.expand(x.size(0), 6) * 2


@safe(ROWS, "float32[B]", "int64[B]{0:4}", "bool[B,6]", parts=lambda: {"table": nn.Embedding(4, 6)})
def several_arguments(self, x, weight, label, mask):
    h = self.encode(x) * weight.unsqueeze(1) + self.table(label)
    return h * mask


@safe("float32[5,B,8]", ROWS)
def batch_in_other_dims(self, series, x):
    """Dim 1 of one argument, dim 0 of another."""
    return (self.encode(series) * self.encode(x)).sum(0)


@safe(ROWS, "2", "0.5", "true", scripted=True)
def numbers_passed(self, x, power: int, scale: float, flag: bool):
    h = self.encode(x)
    if flag:
        h = h**power
    return h * scale


@safe(ROWS, "none", scripted=True)
def absent_argument(self, x, mask: Optional[Tensor]):
    h = self.encode(x)
    if mask is not None:
        h = h * mask
    return h


@safe(
    "[float32[B,8], float32[B,8]]", scripted=True, careful="the batch comes inside of a container"
)
def list_of_arguments(self, inputs: List[Tensor]):
    return self.encode(inputs[0]) + self.encode(inputs[1])


# ---------------------------------------------------------------------------
# Control flow and writes


@safe(SERIES, scripted=True)
def branch_on_shape(self, x):
    h = self.encode(x)
    if x.dim() == 3 and x.size(1) > 4:
        h = h.mean(1)
    return h


@safe(ROWS, scripted=True, parts=lambda: {"twice": True})
def branch_on_flag(self, x):
    h = self.encode(x)
    if self.twice and not self.training:
        h = h * 2
    return h


@safe(SERIES, scripted=True)
def loop_over_time(self, x):
    """A recurrence through time, of known length."""
    state = torch.zeros(x.size(0), 6)
    for step in range(5):
        state = 0.5 * state + self.encode(x[:, step])
    return state


@safe(SERIES, scripted=True, careful="a list that a loop fills")
def loop_over_steps(self, x):
    """As many steps as the argument has."""
    state = torch.zeros(x.size(0), 6)
    states: List[Tensor] = []
    for step in range(x.size(1)):
        state = torch.tanh(state + self.encode(x[:, step]))
        states.append(state)
    return torch.stack(states, 1)


@safe(SERIES)
def loop_traced(self, x):
    state = torch.zeros(x.size(0), 6)
    for step in range(5):
        state = torch.tanh(state + self.encode(x[:, step]))
    return state


@safe(ROWS, parts=lambda: {"drop": nn.Dropout(0.5)})
def dropout_in_eval(self, x):
    return self.drop(self.encode(x)), F.dropout(x, 0.5, self.training)


@safe(ROWS, scripted=True, parts=lambda: {"drop": nn.Dropout(0.5)})
def dropout_in_eval_scripted(self, x):
    return self.drop(self.encode(x))


@safe(ROWS)
def fresh_tensor_written(self, x):
    h = self.encode(x)
    h.mul_(2).add_(1).relu_()
    return F.relu(h - 1, inplace=True)


@safe(ROWS, scripted=True, careful="writes through views are not tiled")
def columns_written(self, x):
    """Of a fresh tensor; each sample's own."""
    h = self.encode(x) + 0
    h[:, 0] = 0.0
    h[:, 1:3] *= 2
    return h


@safe(SERIES, careful="writes through views are not tiled")
def steps_written(self, x):
    out = torch.empty(x.size(0), 5, 6)
    for step in range(5):
        out[:, step] = self.encode(x[:, step])
    return out


@safe(ROWS, careful="writes to arguments are not tiled")
def argument_of_samples_written(self, x):
    """Each sample is written once, whatever the tiles."""
    x.mul_(0.5)
    return self.encode(x), x


@safe(ROWS, parts=lambda: {"table": torch.randn(6)})
def buffer_read(self, x):
    return self.encode(x) + self.table, self.table.clone().mul_(2)


@safe(ROWS)
def detached(self, x):
    h = self.encode(x)
    return h.detach() + 1, h.to(torch.float64), h.contiguous().clone()


@safe(ROWS)
def complex_numbers(self, x):
    h = torch.complex(self.encode(x), x[:, :6])
    return h.abs(), torch.view_as_real(h), torch.fft.fft(h, dim=1)


@safe(ROWS, scripted=True)
def asked_for_its_size(self, x):
    """What is made for its size alone need not be made."""
    h = self.encode(x)
    return h.new_zeros(x.sin().size(0), 3) + h[:, :3]


@safe("float32[]", ROWS)
def number_beside_rows(self, s, x):
    """One view has the batch, its neighbour has not."""
    return torch.atleast_2d([s, self.encode(x)])


@safe(SERIES, scripted=True, careful="writes in a loop keep their order")
def steps_kept_and_last(self, x):
    """A buffer that a loop writes is returned beside what the loop hands on."""
    steps = torch.zeros(x.size(0), 5, 8)
    h = torch.zeros(x.size(0), 8)
    for t in range(5):
        h = torch.tanh(x[:, t] + h)
        steps[:, t] = h
    return steps, h


@safe(
    SERIES,
    scripted=True,
    careful="it may warn, and raise",
    parts=lambda: {"norm": nn.InstanceNorm1d(5)},
)
def instance_norm_scripted(self, x):
    """Checks the shape of its input first."""
    return self.norm(x) + 1
