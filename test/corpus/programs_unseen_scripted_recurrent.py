"""Scripted recurrent networks that no rule was made with."""

from typing import Final, List, Optional, Tuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from registry import network, scripted

ROWS = "float32[B,8]"

SEQUENCE = "float32[B,6,8]"


@scripted()
def unseen_script_lstm_cell():
    class Recurrent(nn.Module):
        def __init__(self):
            super().__init__()
            self.cell = nn.LSTMCell(8, 12)
            self.head = nn.Linear(12, 5)

        def forward(self, x):
            h = torch.zeros(x.size(0), 12, device=x.device)
            c = torch.zeros(x.size(0), 12, device=x.device)
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                h, c = self.cell(x[:, t], (h, c))
                outputs.append(self.head(h))
            return torch.stack(outputs, dim=1), (h, c)

    return Recurrent(), [SEQUENCE]


@scripted()
def unseen_script_gru_reversed():
    """Both directions, one of them from the end."""

    class Both(nn.Module):
        def __init__(self):
            super().__init__()
            self.forth, self.back = nn.GRUCell(8, 6), nn.GRUCell(8, 6)

        def forward(self, x):
            steps = x.unbind(1)
            h = x.new_zeros(x.size(0), 6)
            forth: List[Tensor] = []
            for step in steps:
                h = self.forth(step, h)
                forth.append(h)
            h = x.new_zeros(x.size(0), 6)
            back: List[Tensor] = []
            for i in range(len(steps) - 1, -1, -1):
                h = self.back(steps[i], h)
                back.append(h)
            back = back[::-1]
            return torch.cat([torch.stack(forth, 1), torch.stack(back, 1)], dim=2)

    return Both(), [SEQUENCE]


class OwnCell(nn.Module):
    def __init__(self, inputs: int, hidden: int):
        super().__init__()
        self.weight_ih = nn.Parameter(torch.randn(4 * hidden, inputs) * 0.3)
        self.weight_hh = nn.Parameter(torch.randn(4 * hidden, hidden) * 0.3)
        self.bias = nn.Parameter(torch.randn(4 * hidden))

    def forward(self, x: Tensor, state: Tuple[Tensor, Tensor]) -> Tuple[Tensor, Tensor]:
        h, c = state
        gates = torch.mm(x, self.weight_ih.t()) + torch.mm(h, self.weight_hh.t()) + self.bias
        i, f, g, o = gates.chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c


@scripted()
def unseen_script_own_cells():
    """Layers of cells with a state each, in a list of pairs."""

    class Stack(nn.Module):
        def __init__(self):
            super().__init__()
            self.cells = nn.ModuleList([OwnCell(8, 6), OwnCell(6, 6)])

        def forward(self, x):
            states: List[Tuple[Tensor, Tensor]] = []
            for _ in range(2):
                states.append((x.new_zeros(x.size(0), 6), x.new_zeros(x.size(0), 6)))
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                y = x[:, t]
                for i, cell in enumerate(self.cells):
                    states[i] = cell(y, states[i])
                    y = states[i][0]
                outputs.append(y)
            return torch.stack(outputs, 1)

    return Stack(), [SEQUENCE]


@scripted()
def unseen_script_layered_states():
    """As custom recurrent layers: each layer over all of the time."""

    class Layer(nn.Module):
        def __init__(self, inputs: int, hidden: int):
            super().__init__()
            self.cell = OwnCell(inputs, hidden)

        def forward(
            self, x: Tensor, state: Tuple[Tensor, Tensor]
        ) -> Tuple[Tensor, Tuple[Tensor, Tensor]]:
            steps = x.unbind(0)
            outputs = torch.jit.annotate(List[Tensor], [])
            for i in range(len(steps)):
                state = self.cell(steps[i], state)
                outputs += [state[0]]
            return torch.stack(outputs), state

    class Stacked(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList([Layer(8, 7), Layer(7, 7)])

        def forward(self, x, h, c):
            finals: List[Tensor] = []
            i = 0
            for layer in self.layers:
                x, state = layer(x, (h[i], c[i]))
                finals.append(state[0])
                i += 1
            return x, torch.stack(finals)

    return Stacked(), ["float32[5,B,8]", "float32[2,B,7]", "float32[2,B,7]"]


@scripted()
def unseen_script_optional_state():
    """A state that may be given."""

    class Optioned(nn.Module):
        def __init__(self):
            super().__init__()
            self.gru = nn.GRU(8, 6, batch_first=True)
            self.head = nn.Linear(6, 3)

        def forward(self, x, state: Optional[Tensor] = None):
            if state is None:
                state = torch.zeros(1, x.size(0), 6, dtype=x.dtype, device=x.device)
            y, last = self.gru(x, state)
            return self.head(y), last

    return Optioned(), [SEQUENCE]


@scripted()
def unseen_script_encoder_decoder():
    """A decoder that attends, fed with what it said."""

    class Translate(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(12, 8)
            self.encoder = nn.GRU(8, 10, batch_first=True)
            self.attention = nn.Linear(10, 10, bias=False)
            self.cell = nn.GRUCell(18, 10)
            self.head = nn.Linear(10, 12)

        def step(self, token: Tensor, h: Tensor, memory: Tensor) -> Tuple[Tensor, Tensor]:
            scores = torch.bmm(memory, self.attention(h).unsqueeze(2)).squeeze(2)
            weights = F.softmax(scores, dim=1)
            context = torch.bmm(weights.unsqueeze(1), memory).squeeze(1)
            h = self.cell(torch.cat([self.embedding(token), context], dim=1), h)
            return self.head(h), h

        def forward(self, source, length: int = 4):
            memory, h = self.encoder(self.embedding(source))
            h = h[-1]
            token = torch.zeros(source.size(0), dtype=torch.long, device=source.device)
            logits: List[Tensor] = []
            for _ in range(length):
                out, h = self.step(token, h, memory)
                logits.append(out)
                token = out.argmax(dim=1)
            return torch.stack(logits, 1)

    return Translate(), ["int64[B,7]{0:12}"]


@scripted()
def unseen_script_teacher_forcing():
    class Forced(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(12, 8)
            self.cell = nn.LSTMCell(8, 10)
            self.head = nn.Linear(10, 12)

        def forward(self, target: Tensor, forced: bool = True):
            batch, length = target.shape
            h = torch.zeros(batch, 10)
            c = torch.zeros(batch, 10)
            token = target[:, 0]
            out = torch.zeros(batch, length, 12)
            for t in range(1, length):
                h, c = self.cell(self.embedding(token), (h, c))
                logits = self.head(h)
                out[:, t] = logits
                token = target[:, t] if forced else logits.argmax(1)
            return out

    return Forced(), ["int64[B,5]{0:12}"]


@scripted()
def unseen_script_highway():
    """Depth by turns of the same weights, with a gate."""

    def forward(self, x):
        depth = 0
        while depth < 4:
            gate = torch.sigmoid(self.gate(x))
            x = gate * torch.relu(self.change(x)) + (1 - gate) * x
            depth += 1
        return x, depth

    return network(forward, gate=nn.Linear(8, 8), change=nn.Linear(8, 8)), [ROWS]


@scripted()
def unseen_script_greedy():
    """Greedy decoding with the tokens in one tensor that grows."""

    class Greedy(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(15, 8)
            self.mix = nn.Linear(8, 8)
            self.head = nn.Linear(8, 15)

        def forward(self, prompt):
            tokens = prompt
            logits = torch.zeros(prompt.size(0), 15)
            for _ in range(4):
                y = self.embedding(tokens)
                weights = torch.softmax(y @ y.transpose(1, 2) / 3.0, -1)
                y = torch.tanh(self.mix(weights @ y))
                logits = self.head(y[:, -1])
                tokens = torch.cat([tokens, logits.argmax(-1, keepdim=True)], dim=1)
            return tokens, logits

    return Greedy(), ["int64[B,3]{0:15}"]


@scripted()
def unseen_script_cached_keys():
    """Keys and values of all steps before, in lists of tensors."""

    class Cached(nn.Module):
        def __init__(self):
            super().__init__()
            self.qkv = nn.ModuleList(nn.Linear(8, 24) for _ in range(2))

        def forward(self, x):
            keys: List[Tensor] = []
            values: List[Tensor] = []
            outputs: List[Tensor] = []
            for t in range(x.size(1)):
                y = x[:, t : t + 1]
                for i, layer in enumerate(self.qkv):
                    q, k, v = layer(y).split(8, dim=-1)
                    if t == 0:
                        keys.append(k)
                        values.append(v)
                    else:
                        keys[i] = torch.cat([keys[i], k], 1)
                        values[i] = torch.cat([values[i], v], 1)
                    weights = torch.softmax(q @ keys[i].transpose(1, 2), -1)
                    y = y + weights @ values[i]
                outputs.append(y)
            return torch.cat(outputs, 1)

    return Cached(), [SEQUENCE]


@scripted()
def unseen_script_beams():
    """A search of fixed width, with the paths reordered at each step."""

    class Beams(nn.Module):
        width: Final[int]

        def __init__(self):
            super().__init__()
            self.width = 3
            self.embedding = nn.Embedding(9, 6)
            self.cell = nn.GRUCell(6, 6)
            self.head = nn.Linear(6, 9)

        def forward(self, h):
            batch = h.size(0)
            h = h.repeat_interleave(self.width, 0)
            scores = torch.full((batch, self.width), -1e9)
            scores[:, 0] = 0.0
            tokens = torch.zeros(batch * self.width, dtype=torch.long)
            path = torch.zeros(batch, self.width, 0, dtype=torch.long)
            for _ in range(3):
                h = self.cell(self.embedding(tokens), h)
                log_probs = self.head(h).log_softmax(-1).view(batch, self.width, 9)
                total = (scores.unsqueeze(-1) + log_probs).view(batch, -1)
                scores, index = total.topk(self.width, dim=1)
                beam = index // 9
                token = index % 9
                path = path.gather(1, beam.unsqueeze(-1).expand(-1, -1, path.size(2)))
                path = torch.cat([path, token.unsqueeze(-1)], 2)
                rows = (torch.arange(batch).unsqueeze(1) * self.width + beam).view(-1)
                h = h.index_select(0, rows)
                tokens = token.view(-1)
            return path, scores

    return Beams(), ["float32[B,6]"]


@scripted()
def unseen_script_windows():
    """A long signal in windows, with what is left of it."""

    def forward(self, x):
        outputs: List[Tensor] = []
        for start in range(0, x.size(1), 4):
            end = min(start + 4, x.size(1))
            window = x[:, start:end]
            outputs.append(self.net(window).mean(dim=1))
        return torch.stack(outputs, dim=1)

    return network(forward, net=nn.Sequential(nn.Linear(8, 12), nn.Tanh())), ["float32[B,10,8]"]
