"""Traced networks of text that no rule was made with."""

import math

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program, record


class Encoder(nn.Module):
    def __init__(self, nested=False, **options):
        super().__init__()
        self.embedding = nn.Embedding(40, 24, padding_idx=0)
        self.register_buffer("place", torch.randn(1, 16, 24))
        layer = nn.TransformerEncoderLayer(24, 4, 48, batch_first=True, **options)
        self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=nested)
        self.head = nn.Linear(24, 6)

    def forward(self, ids):
        mask = ids == 0
        y = self.embedding(ids) * math.sqrt(24) + self.place[:, : ids.size(1)]
        y = self.encoder(y, src_key_padding_mask=mask)
        kept = (~mask).unsqueeze(-1)
        return self.head((y * kept).sum(1) / kept.sum(1).clamp(min=1))


IDS = "int64[B,11]{0:40}"


@program
def unseen_padded_encoder():
    return Encoder(), [IDS]


@program
def unseen_padded_encoder_no_grad():
    """The fast path, which has a mask."""
    return record(Encoder(), [IDS], grad=False)


@program
def unseen_padded_encoder_nested():
    """The fast path with nested tensors, which masks have to end that begin
    anywhere but at the end."""
    return record(Encoder(nested=True), [IDS.replace("0:", "1:")], grad=False)


@program
def unseen_padded_encoder_training():
    return record(Encoder(activation="gelu", norm_first=True), [IDS], training=True)


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(30, 16), nn.Embedding(35, 16)
        self.transformer = nn.Transformer(16, 2, 2, 1, 40, dropout=0.1, batch_first=True)
        self.head = nn.Linear(16, 35)

    def forward(self, source, target):
        causal = nn.Transformer.generate_square_subsequent_mask(target.size(1))
        padding = source.eq(1)
        out = self.transformer(
            self.source(source),
            self.target(target),
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_is_causal=True,
        )
        return self.head(out)


PAIR = ["int64[B,9]{0:30}", "int64[B,7]{0:35}"]


@program
def unseen_translator():
    return Translator(), PAIR


@program
def unseen_translator_no_grad():
    return record(Translator(), PAIR, grad=False)


@program
def unseen_translator_training():
    return record(Translator(), PAIR, training=True)


@program
def unseen_attention_weights():
    """Attention with given weights of both kinds, and masks of each kind."""

    def forward(self, x, memory, lengths):
        places = torch.arange(memory.size(1), device=memory.device)
        padding = places[None, :] >= lengths[:, None]
        y, weights = self.cross(x, memory, memory, key_padding_mask=padding)
        causal = torch.triu(torch.ones(x.size(1), x.size(1), dtype=torch.bool), 1)
        z, heads = self.own(y, y, y, attn_mask=causal, average_attn_weights=False)
        return z, weights, heads

    return network(
        forward,
        cross=nn.MultiheadAttention(16, 4, kdim=10, vdim=10, batch_first=True),
        own=nn.MultiheadAttention(16, 2, batch_first=True, add_bias_kv=False),
    ), ["float32[B,6,16]", "float32[B,8,10]", "int64[B]{1:9}"]


class Rotary(nn.Module):
    """A decoder block with rotary places, grouped keys, a gated network."""

    def __init__(self, width=32, heads=4, groups=2):
        super().__init__()
        self.heads, self.groups, self.size = heads, groups, width // heads
        self.q = nn.Linear(width, width, bias=False)
        self.kv = nn.Linear(width, 2 * groups * self.size, bias=False)
        self.o = nn.Linear(width, width, bias=False)
        self.gate, self.up = nn.Linear(width, 48, bias=False), nn.Linear(width, 48, bias=False)
        self.down = nn.Linear(48, width, bias=False)
        self.one, self.two = nn.RMSNorm(width), nn.RMSNorm(width)
        frequency = 1.0 / 100 ** (torch.arange(0, self.size, 2).float() / self.size)
        self.register_buffer("frequency", frequency)

    def rotate(self, x):
        angles = torch.outer(torch.arange(x.size(-2)).float(), self.frequency)
        angles = torch.cat([angles, angles], -1)
        low, high = x.chunk(2, -1)
        y = x * angles.cos() + torch.cat([-high, low], -1) * angles.sin()
        return y.type_as(x)

    def forward(self, x):
        batch, length, width = x.shape
        y = self.one(x)
        q = self.q(y).view(batch, length, self.heads, -1).transpose(1, 2)
        k, v = self.kv(y).view(batch, length, 2, self.groups, -1).permute(2, 0, 3, 1, 4)
        q, k = self.rotate(q), self.rotate(k)
        k = k.repeat_interleave(self.heads // self.groups, dim=1)
        v = v.repeat_interleave(self.heads // self.groups, dim=1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.o(y.transpose(1, 2).reshape(batch, length, width))
        y = self.two(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


@program
def unseen_rotary_decoder():
    model = nn.Sequential(nn.Embedding(50, 32), Rotary(), Rotary(), nn.RMSNorm(32))
    return model, ["int64[B,10]{0:50}"]


@program
def unseen_rotary_decoder_half():
    model = nn.Sequential(nn.Embedding(50, 32), Rotary(), nn.RMSNorm(32), nn.Linear(32, 50))
    return model.to(torch.bfloat16), ["int64[B,10]{0:50}"]


@program
def unseen_language_model_loss():
    def forward(self, ids):
        logits = self.head(self.block(self.embedding(ids)))
        shifted, labels = logits[:, :-1].contiguous(), ids[:, 1:].contiguous()
        loss = F.cross_entropy(
            shifted.view(-1, 50), labels.view(-1), ignore_index=0, label_smoothing=0.1
        )
        return loss, logits

    model = network(forward, embedding=nn.Embedding(50, 32), block=Rotary(), head=nn.Linear(32, 50))
    model.head.weight = model.embedding.weight
    return model, ["int64[B,10]{0:50}"]


@program
def unseen_linear_bias_attention():
    """Scores that fall with the distance, a slope per head."""

    def forward(self, x):
        batch, length, _ = x.shape
        q, k, v = (
            part.reshape(batch, length, 4, 6).transpose(1, 2) for part in self.qkv(x).split(24, -1)
        )
        distance = torch.arange(length)[None, :] - torch.arange(length)[:, None]
        slopes = torch.tensor([2.0 ** -(i + 1) for i in range(4)]).view(4, 1, 1)
        scores = q @ k.mT / math.sqrt(6) + slopes * distance
        scores = scores.masked_fill(distance > 0, float("-inf"))
        y = torch.matmul(scores.softmax(-1, dtype=torch.float32).type_as(q), v)
        return self.out(y.transpose(1, 2).contiguous().view(batch, length, 24))

    return network(forward, qkv=nn.Linear(24, 72), out=nn.Linear(24, 24)), ["float32[B,9,24]"]


@program
def unseen_relative_shift():
    """Relative places by padding and reading with another row length."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)
        content = torch.einsum("bqd,bkd->bqk", q + self.u, k)
        place = torch.einsum("bqd,rd->bqr", q + self.v, self.places)
        batch, rows, columns = place.shape
        place = F.pad(place, (1, 0)).view(batch, columns + 1, rows)[:, 1:].view_as(place)
        weights = ((content + place[..., :rows]) * 0.3).softmax(-1)
        return torch.einsum("bqk,bkd->bqd", weights, v)

    return network(
        forward,
        qkv=nn.Linear(12, 36),
        u=nn.Parameter(torch.randn(12)),
        v=nn.Parameter(torch.randn(12)),
        places=nn.Parameter(torch.randn(8, 12)),
    ), ["float32[B,8,12]"]


@program
def unseen_text_convolutions():
    def forward(self, ids):
        y = self.embedding(ids).transpose(1, 2)
        parts = [F.max_pool1d(F.relu(conv(y)), y.size(2) - i).squeeze(2)
                 for i, conv in zip((1, 2, 3), self.convs)]  # fmt: skip
        return F.log_softmax(self.head(F.dropout(torch.cat(parts, 1), 0.5, self.training)), 1)

    return network(
        forward,
        embedding=nn.Embedding(60, 14),
        convs=nn.ModuleList(nn.Conv1d(14, 8, size) for size in (2, 3, 4)),
        head=nn.Linear(24, 5),
    ), ["int64[B,15]{0:60}"]


@program
def unseen_bags_of_words():
    """Bags in one row of ids with offsets, weighted and not."""

    def forward(self, ids, weights, rows):
        offsets = torch.arange(0, ids.size(0), 5)
        mean = self.mean(ids, offsets)
        total = self.sum(ids, offsets, per_sample_weights=weights)
        best = self.best(rows)
        return self.head(torch.cat([mean, total, best], 1))

    return network(
        forward,
        mean=nn.EmbeddingBag(50, 6),
        sum=nn.EmbeddingBag(50, 7, mode="sum"),
        best=nn.EmbeddingBag(50, 4, mode="max"),
        head=nn.Linear(17, 3),
    ), ["int64[5*B]{0:50}", "float32[5*B]", "int64[B,6]{0:50}"]


@program
def unseen_random_field():
    """A chain of labels: the sum over all of them, and the best one."""

    def forward(self, x):
        scores = self.emit(x)
        alpha, best = scores[:, 0], scores[:, 0]
        pointers = []
        for t in range(1, scores.size(1)):
            step = scores[:, t].unsqueeze(1)
            alpha = torch.logsumexp(alpha.unsqueeze(2) + self.moves + step, dim=1)
            best, pointer = (best.unsqueeze(2) + self.moves + step).max(1)
            pointers.append(pointer)
        label = best.argmax(1)
        path = [label]
        for pointer in reversed(pointers):
            label = pointer.gather(1, label.unsqueeze(1)).squeeze(1)
            path.append(label)
        return torch.logsumexp(alpha, 1), torch.stack(path[::-1], 1)

    return network(forward, emit=nn.Linear(8, 5), moves=nn.Parameter(torch.randn(5, 5))), [
        "float32[B,6,8]"
    ]


@program
def unseen_decoder_given_states():
    """The states of one network start another."""

    def forward(self, source, target, h0):
        memory, h = self.encoder(source, h0)
        h = torch.tanh(self.bridge(torch.cat([h[0::2], h[1::2]], dim=2)))
        out, (h, c) = self.decoder(target, (h, torch.zeros_like(h)))
        weights = torch.bmm(out, self.key(memory).transpose(1, 2)).softmax(2)
        return self.head(torch.cat([out, weights.bmm(memory)], 2)), h.squeeze(0), c[-1]

    return network(
        forward,
        encoder=nn.GRU(6, 8, batch_first=True, bidirectional=True),
        bridge=nn.Linear(16, 10),
        decoder=nn.LSTM(5, 10, batch_first=True),
        key=nn.Linear(16, 10),
        head=nn.Linear(26, 4),
    ), ["float32[B,7,6]", "float32[B,5,5]", "float32[2,B,8]"]


@program
def unseen_projected_lstm():
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        z, _ = self.rnn(y.flip(1))
        return z[:, -1], h.permute(1, 0, 2).flatten(1), c.sum(0)

    return network(
        forward,
        lstm=nn.LSTM(9, 16, 2, batch_first=True, proj_size=5),
        rnn=nn.RNN(5, 7, nonlinearity="relu", batch_first=True, bias=False),
    ), ["float32[B,6,9]"]


@program
def unseen_random_features():
    """Attention by positive features, causal by running sums."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, -1)

        def feature(u):
            return torch.exp(u @ self.random - u.square().sum(-1, keepdim=True) / 2)

        q, k = feature(q * 0.3), feature(k * 0.3)
        context = torch.cumsum(k.unsqueeze(-1) * v.unsqueeze(-2), dim=1)
        norm = (q * k.cumsum(1)).sum(-1, keepdim=True)
        return torch.einsum("blf,blfd->bld", q, context) / (norm + 1e-6)

    return network(forward, qkv=nn.Linear(10, 30), random=torch.randn(10, 12)), ["float32[B,8,10]"]
