"""Traced networks of text, sound and series, as people write them outside of
this repository."""

import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm

from registry import program, record


class RMSNorm(nn.Module):
    def __init__(self, dim, eps=1e-6):
        super().__init__()
        self.weight, self.eps = nn.Parameter(torch.ones(dim)), eps

    def forward(self, x):
        dtype = x.dtype
        x = x.to(torch.float32)
        x = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + self.eps)
        return self.weight * x.to(dtype)


def rotate_half(x):
    x1, x2 = x[..., : x.shape[-1] // 2], x[..., x.shape[-1] // 2 :]
    return torch.cat((-x2, x1), dim=-1)


def apply_rope(q, k, cos, sin):
    return q * cos + rotate_half(q) * sin, k * cos + rotate_half(k) * sin


def repeat_kv(x, n):
    b, h, t, d = x.shape
    return x[:, :, None].expand(b, h, n, t, d).reshape(b, h * n, t, d)


class GQAttention(nn.Module):
    def __init__(self, dim=32, heads=4, kv=2):
        super().__init__()
        self.heads, self.kv, self.hd = heads, kv, dim // heads
        self.q = nn.Linear(dim, dim, bias=False)
        self.k = nn.Linear(dim, kv * self.hd, bias=False)
        self.v = nn.Linear(dim, kv * self.hd, bias=False)
        self.o = nn.Linear(dim, dim, bias=False)
        inv = 1.0 / (10000 ** (torch.arange(0, self.hd, 2).float() / self.hd))
        self.register_buffer("inv", inv, persistent=False)

    def rope(self, position):
        freqs = position[:, :, None].float() * self.inv[None, None, :]
        emb = torch.cat((freqs, freqs), -1)
        return emb.cos()[:, None], emb.sin()[:, None]

    def project(self, x):
        b, t, _ = x.shape
        q = self.q(x).view(b, t, self.heads, self.hd).transpose(1, 2)
        k = self.k(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        v = self.v(x).view(b, t, self.kv, self.hd).transpose(1, 2)
        return q, k, v

    def forward(self, x, position):
        b, t, _ = x.shape
        q, k, v = self.project(x)
        q, k = apply_rope(q, k, *self.rope(position))
        k, v = repeat_kv(k, self.heads // self.kv), repeat_kv(v, self.heads // self.kv)
        out = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o(out.transpose(1, 2).contiguous().view(b, t, -1))


class SwiGLU(nn.Module):
    def __init__(self, dim, hidden):
        super().__init__()
        self.gate, self.up = nn.Linear(dim, hidden, bias=False), nn.Linear(dim, hidden, bias=False)
        self.down = nn.Linear(hidden, dim, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class DecoderLayer(nn.Module):
    def __init__(self, dim=32):
        super().__init__()
        self.attn, self.mlp = GQAttention(dim), SwiGLU(dim, 64)
        self.n1, self.n2 = RMSNorm(dim), RMSNorm(dim)

    def forward(self, x, position):
        x = x + self.attn(self.n1(x), position)
        return x + self.mlp(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, vocab=50, dim=32):
        super().__init__()
        self.embed = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList([DecoderLayer(dim) for _ in range(2)])
        self.norm = RMSNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.embed.weight

    def forward(self, ids):
        position = torch.arange(ids.shape[1], device=ids.device).unsqueeze(0)
        x = self.embed(ids)
        for layer in self.layers:
            x = layer(x, position)
        return self.head(self.norm(x))


@program
def fresh_llama():
    return Decoder(), ["int64[B,12]{0:50}"]


@program
def fresh_llama_loss():
    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = Decoder()

        def forward(self, ids):
            logits = self.net(ids)[:, :-1, :].contiguous()
            labels = ids[:, 1:].contiguous()
            return F.cross_entropy(logits.view(-1, logits.size(-1)), labels.view(-1))

    return Loss(), ["int64[B,12]{0:50}"]


@program
def fresh_decode_step():
    """One token with keys and values of before."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(50, 32)
            self.attn, self.mlp = GQAttention(), SwiGLU(32, 64)
            self.n1, self.n2 = RMSNorm(32), RMSNorm(32)
            self.head = nn.Linear(32, 50)

        def forward(self, token, past_k, past_v):
            x = self.embed(token)
            h = self.n1(x)
            q, k, v = self.attn.project(h)
            position = torch.full((token.shape[0], 1), past_k.shape[2], dtype=torch.long)
            q, k = apply_rope(q, k, *self.attn.rope(position))
            k, v = torch.cat([past_k, k], 2), torch.cat([past_v, v], 2)
            weights = torch.matmul(q, repeat_kv(k, 2).transpose(2, 3)) / math.sqrt(8)
            weights = F.softmax(weights, dim=-1, dtype=torch.float32).to(q.dtype)
            out = torch.matmul(weights, repeat_kv(v, 2)).transpose(1, 2).reshape(-1, 1, 32)
            x = x + self.attn.o(out)
            x = x + self.mlp(self.n2(x))
            return self.head(x[:, -1]), k, v

    return Net(), ["int64[B,1]{0:50}", "float32[B,2,9,8]", "float32[B,2,9,8]"]


@program
def fresh_t5():
    def buckets(rel, num=8, most=20):
        num //= 2
        ret = (rel > 0).to(torch.long) * num
        n = torch.abs(rel)
        exact = num // 2
        large = exact + (torch.log(n.float() / exact) / math.log(most / exact) * (num - exact)).to(
            torch.long
        )
        large = torch.min(large, torch.full_like(large, num - 1))
        return ret + torch.where(n < exact, n, large)

    class Net(nn.Module):
        def __init__(self, dim=24, heads=3):
            super().__init__()
            self.heads = heads
            self.embed, self.bias = nn.Embedding(40, dim), nn.Embedding(8, heads)
            self.q, self.k, self.v, self.o = (nn.Linear(dim, dim, bias=False) for _ in range(4))
            self.n1, self.n2 = RMSNorm(dim), RMSNorm(dim)
            self.wi, self.wo = nn.Linear(dim, 48, bias=False), nn.Linear(48, dim, bias=False)
            self.drop = nn.Dropout(0.1)

        def forward(self, ids, mask):
            x = self.embed(ids)
            b, t, c = x.shape
            context = torch.arange(t)[:, None]
            memory = torch.arange(t)[None, :]
            bias = self.bias(buckets(memory - context)).permute([2, 0, 1]).unsqueeze(0)
            ext = (1.0 - mask[:, None, None, :].float()) * torch.finfo(torch.float32).min
            h = self.n1(x)

            def shape(y):
                return y.view(b, -1, self.heads, c // self.heads).transpose(1, 2)

            scores = torch.matmul(shape(self.q(h)), shape(self.k(h)).transpose(3, 2))
            scores += bias + ext
            a = self.drop(F.softmax(scores.float(), dim=-1).type_as(scores))
            y = torch.matmul(a, shape(self.v(h))).transpose(1, 2).contiguous().view(b, -1, c)
            x = x + self.drop(self.o(y))
            return x + self.drop(self.wo(self.drop(F.relu(self.wi(self.n2(x))))))

    return Net(), ["int64[B,10]{0:40}", "int64[B,10]{0:2}"]


class BertLayer(nn.Module):
    def __init__(self, dim=32, heads=4):
        super().__init__()
        self.heads = heads
        self.query, self.key, self.value = (nn.Linear(dim, dim) for _ in range(3))
        self.dense, self.inter, self.out = (
            nn.Linear(dim, dim),
            nn.Linear(dim, 64),
            nn.Linear(64, dim),
        )
        self.n1, self.n2 = nn.LayerNorm(dim, 1e-12), nn.LayerNorm(dim, 1e-12)
        self.dropout = nn.Dropout(0.1)

    def split(self, x):
        return x.view(*x.size()[:-1], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x, mask):
        q, k, v = self.split(self.query(x)), self.split(self.key(x)), self.split(self.value(x))
        s = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.size(-1)) + mask
        c = torch.matmul(self.dropout(nn.Softmax(dim=-1)(s)), v).permute(0, 2, 1, 3).contiguous()
        c = c.view(*c.size()[:-2], -1)
        x = self.n1(self.dropout(self.dense(c)) + x)
        return self.n2(self.dropout(self.out(F.gelu(self.inter(x)))) + x)


@program
def fresh_bert_mlm_loss():
    class Net(nn.Module):
        def __init__(self, dim=32):
            super().__init__()
            self.word = nn.Embedding(60, dim, padding_idx=0)
            self.pos, self.kind = nn.Embedding(16, dim), nn.Embedding(2, dim)
            self.norm, self.drop = nn.LayerNorm(dim, 1e-12), nn.Dropout(0.1)
            self.layers = nn.ModuleList([BertLayer(dim), BertLayer(dim)])
            self.transform = nn.Sequential(nn.Linear(dim, dim), nn.GELU(), nn.LayerNorm(dim))
            self.decoder = nn.Linear(dim, 60, bias=False)
            self.bias = nn.Parameter(torch.randn(60))
            self.pool, self.nsp = nn.Linear(dim, dim), nn.Linear(dim, 2)
            self.register_buffer("ids", torch.arange(16).expand((1, -1)))

        def forward(self, ids, types, mask, labels, following):
            t = ids.size(1)
            x = self.word(ids) + self.pos(self.ids[:, :t]) + self.kind(types)
            x = self.drop(self.norm(x))
            ext = (1.0 - mask[:, None, None, :].to(x.dtype)) * -10000.0
            for layer in self.layers:
                x = layer(x, ext)
            scores = self.decoder(self.transform(x)) + self.bias
            labels = torch.where(labels < 5, labels, torch.full_like(labels, -100))
            mlm = nn.CrossEntropyLoss()(scores.view(-1, 60), labels.view(-1))
            nsp = self.nsp(torch.tanh(self.pool(x[:, 0])))
            return mlm + nn.CrossEntropyLoss()(nsp.view(-1, 2), following.view(-1))

    return Net(), [
        "int64[B,12]{0:60}",
        "int64[B,12]{0:2}",
        "int64[B,12]{0:2}",
        "int64[B,12]{0:10}",
        "int64[B]{0:2}",
    ]


@program
def fresh_bert_training():
    """nn.TransformerEncoder as it comes, with dropout and a padding mask."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(60, 32, padding_idx=0)
            layer = nn.TransformerEncoderLayer(
                32, 4, 64, 0.1, "gelu", batch_first=True, norm_first=True
            )
            self.encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
            self.fc = nn.Linear(32, 3)

        def forward(self, ids, label):
            pad = ids == 0
            x = self.encoder(self.embed(ids) * math.sqrt(32), src_key_padding_mask=pad)
            keep = (~pad).unsqueeze(-1).float()
            x = (x * keep).sum(1) / keep.sum(1).clamp(min=1e-9)
            return F.cross_entropy(self.fc(x), label)

    return record(Net(), ["int64[B,12]{0:60}", "int64[B]{0:3}"], training=True)


@program
def fresh_moe_loss():
    class Net(nn.Module):
        def __init__(self, dim=16, experts=4, k=2):
            super().__init__()
            self.e, self.k = experts, k
            self.gate = nn.Linear(dim, experts, bias=False)
            self.w1 = nn.Parameter(torch.randn(experts, dim, 32) * 0.1)
            self.w2 = nn.Parameter(torch.randn(experts, 32, dim) * 0.1)
            self.out = nn.Linear(dim, 5)

        def forward(self, x, y):
            probs = F.softmax(self.gate(x), dim=-1)
            top, index = torch.topk(probs, self.k, dim=-1)
            top = top / top.sum(-1, keepdim=True)
            hot = F.one_hot(index, self.e).to(x.dtype)
            combine = (hot * top.unsqueeze(-1)).sum(-2)
            h = F.gelu(torch.einsum("btd,edh->beth", x, self.w1))
            h = torch.einsum("beth,ehd->betd", h, self.w2)
            out = torch.einsum("betd,bte->btd", h, combine) + x
            load = hot.sum(-2).mean((0, 1))
            balance = self.e * (load * probs.mean((0, 1))).sum()
            return F.cross_entropy(self.out(out).flatten(0, 1), y.flatten()) + 0.01 * balance

    return Net(), ["float32[B,6,16]", "int64[B,6]{0:5}"]


@program
def fresh_char_cnn():
    class Highway(nn.Module):
        def __init__(self, n):
            super().__init__()
            self.h, self.t = nn.Linear(n, n), nn.Linear(n, n)

        def forward(self, x):
            g = torch.sigmoid(self.t(x))
            return g * F.relu(self.h(x)) + (1 - g) * x

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = nn.Embedding(70, 8, padding_idx=0)
            self.convs = nn.ModuleList([nn.Conv1d(8, 6, k) for k in (2, 3, 4)])
            self.highway = Highway(18)
            self.fc = nn.Linear(18, 4)

        def forward(self, chars):
            b, words, letters = chars.size()
            x = self.embed(chars.view(b * words, letters)).transpose(1, 2)
            x = torch.cat([F.relu(c(x)).max(dim=2)[0] for c in self.convs], 1)
            x = self.highway(x).view(b, words, -1)
            return F.log_softmax(self.fc(x), -1)

    return Net(), ["int64[B,5,9]{0:70}"]


@program
def fresh_linear_attention():
    class Net(nn.Module):
        def __init__(self, dim=16, heads=2):
            super().__init__()
            self.h = heads
            self.qkv, self.o = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)

        def forward(self, x):
            b, t, c = x.shape
            q, k, v = (
                y.view(b, t, self.h, -1).transpose(1, 2) for y in self.qkv(x).split(c, dim=2)
            )
            q, k = F.elu(q) + 1, F.elu(k) + 1
            kv = torch.einsum("bhtd,bhte->bhtde", k, v).cumsum(2)
            z = 1 / (torch.einsum("bhtd,bhtd->bht", q, k.cumsum(2)) + 1e-6)
            y = torch.einsum("bhtd,bhtde,bht->bhte", q, kv, z)
            return self.o(y.transpose(1, 2).reshape(b, t, c))

    return Net(), ["float32[B,8,16]"]


@program
def fresh_selective_scan():
    """Mamba's block, the scan unrolled."""

    class Net(nn.Module):
        def __init__(self, dim=8, inner=16, state=4):
            super().__init__()
            self.inner, self.state = inner, state
            self.inp = nn.Linear(dim, 2 * inner, bias=False)
            self.conv = nn.Conv1d(inner, inner, 4, groups=inner, padding=3)
            self.xp, self.dt = nn.Linear(inner, 1 + 2 * state, bias=False), nn.Linear(1, inner)
            self.a_log = nn.Parameter(
                torch.log(torch.arange(1, state + 1).float().repeat(inner, 1))
            )
            self.d = nn.Parameter(torch.ones(inner))
            self.out = nn.Linear(inner, dim, bias=False)

        def forward(self, x):
            b, steps, _ = x.shape
            x, z = self.inp(x).chunk(2, dim=-1)
            x = self.conv(x.transpose(1, 2))[..., :steps].transpose(1, 2)
            x = F.silu(x)
            dt, bb, cc = self.xp(x).split([1, self.state, self.state], dim=-1)
            dt = F.softplus(self.dt(dt))
            a = -torch.exp(self.a_log)
            da = torch.exp(dt.unsqueeze(-1) * a)
            db = dt.unsqueeze(-1) * bb.unsqueeze(2) * x.unsqueeze(-1)
            h = torch.zeros(b, self.inner, self.state)
            ys = []
            for i in range(7):
                h = da[:, i] * h + db[:, i]
                ys.append((h @ cc[:, i].unsqueeze(-1)).squeeze(-1))
            y = torch.stack(ys, 1) + x * self.d
            return self.out(y * F.silu(z))

    return Net(), ["float32[B,7,8]"]


@program
def fresh_dpo_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.policy, self.reference = (
                nn.Sequential(nn.Embedding(30, 16), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, 30))
                for _ in range(2)
            )

        def logp(self, net, ids, mask):
            logits = net(ids)[:, :-1]
            labels = ids[:, 1:]
            per = torch.gather(logits.log_softmax(-1), 2, labels.unsqueeze(2)).squeeze(2)
            return (per * mask[:, 1:]).sum(-1)

        def forward(self, ids, mask):
            """The chosen ones, then the rejected ones."""
            pi = self.logp(self.policy, ids, mask)
            with torch.no_grad():
                ref = self.logp(self.reference, ids, mask)
            chosen, rejected = (pi - ref).view(2, -1)
            margin = 0.1 * (chosen - rejected)
            return -F.logsigmoid(margin).mean(), (margin > 0).float().mean()

    return Net(), ["int64[2*B,8]{0:30}", "float32[2*B,8]{0:1}"]


class ConformerBlock(nn.Module):
    def __init__(self, dim=16):
        super().__init__()
        self.ff1, self.ff2 = (
            nn.Sequential(
                nn.LayerNorm(dim),
                nn.Linear(dim, 32),
                nn.SiLU(),
                nn.Dropout(0.1),
                nn.Linear(32, dim),
                nn.Dropout(0.1),
            )
            for _ in range(2)
        )
        self.na, self.attn = nn.LayerNorm(dim), nn.MultiheadAttention(dim, 2, 0.1, batch_first=True)
        self.nc = nn.LayerNorm(dim)
        self.conv = nn.Sequential(
            nn.Conv1d(dim, 2 * dim, 1),
            nn.GLU(dim=1),
            nn.Conv1d(dim, dim, 7, padding=3, groups=dim),
            nn.BatchNorm1d(dim),
            nn.SiLU(),
            nn.Conv1d(dim, dim, 1),
        )
        self.norm = nn.LayerNorm(dim)

    def forward(self, x):
        x = x + 0.5 * self.ff1(x)
        h = self.na(x)
        x = x + self.attn(h, h, h, need_weights=False)[0]
        x = x + self.conv(self.nc(x).transpose(1, 2)).transpose(1, 2)
        return self.norm(x + 0.5 * self.ff2(x))


@program
def fresh_conformer_ctc():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.sub = nn.Sequential(
                nn.Conv2d(1, 4, 3, 2), nn.ReLU(), nn.Conv2d(4, 4, 3, 2), nn.ReLU()
            )
            self.lin = nn.Linear(4 * 4, 16)
            self.block = ConformerBlock()
            self.fc = nn.Linear(16, 10)

        def forward(self, mel, targets):
            x = self.sub(mel.unsqueeze(1))
            b, c, t, f = x.size()
            x = self.block(self.lin(x.transpose(1, 2).contiguous().view(b, t, c * f)))
            logp = self.fc(x).log_softmax(-1).transpose(0, 1)
            il = torch.full((b,), logp.size(0), dtype=torch.long)
            tl = torch.full((b,), targets.size(1), dtype=torch.long)
            return F.ctc_loss(logp, targets, il, tl, zero_infinity=True)

    return Net(), ["float32[B,47,20]", "int64[B,4]{1:10}"]


@program
def fresh_wav2vec():
    class Net(nn.Module):
        def __init__(self, dim=24):
            super().__init__()
            self.c0 = nn.Conv1d(1, 16, 10, 5, bias=False)
            self.gn = nn.GroupNorm(16, 16)
            self.c1, self.c2 = (
                nn.Conv1d(16, 16, 3, 2, bias=False),
                nn.Conv1d(16, 16, 2, 2, bias=False),
            )
            self.norm, self.proj = nn.LayerNorm(16), nn.Linear(16, dim)
            self.pos = weight_norm(nn.Conv1d(dim, dim, 8, padding=4, groups=4), dim=2)
            self.encoder = nn.TransformerEncoderLayer(dim, 2, 48, 0.0, F.gelu, batch_first=True)
            self.out = nn.Linear(dim, 12)

        def forward(self, wave):
            x = (wave - wave.mean(-1, keepdim=True)) / (wave.var(-1, keepdim=True) + 1e-7).sqrt()
            x = F.gelu(self.gn(self.c0(x.unsqueeze(1))))
            x = F.gelu(self.c2(F.gelu(self.c1(x))))
            x = self.proj(self.norm(x.transpose(1, 2)))
            p = self.pos(x.transpose(1, 2))[:, :, :-1]
            x = x + F.gelu(p).transpose(1, 2)
            return self.out(self.encoder(x))

    return Net(), ["float32[B,400]"]


@program
def fresh_spectrogram():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("window", torch.hann_window(64))
            self.register_buffer("mel", torch.rand(16, 33))
            self.conv = nn.Conv2d(1, 4, 3, padding=1)
            self.fc = nn.Linear(64, 5)

        def forward(self, wave):
            s = torch.stft(wave, 64, 32, 64, self.window, center=True, return_complex=True)
            p = s.abs().pow(2)
            m = torch.log10(torch.clamp(torch.matmul(self.mel, p), min=1e-10))
            m = torch.maximum(m, m.amax(dim=(1, 2), keepdim=True) - 8.0)
            m = (m - m.mean(-1, keepdim=True)) / (m.std(-1, keepdim=True) + 1e-5)
            h = F.relu(self.conv(m.unsqueeze(1)))
            return self.fc(h.mean(-1).flatten(1))

    return Net(), ["float32[B,320]"]


@program
def fresh_stft_loss():
    """Vocoders: several resolutions, and back to the wave."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(nn.Conv1d(1, 8, 9, padding=4), nn.Tanh(), nn.Conv1d(8, 1, 1))

        def forward(self, wave, clean):
            out = self.net(wave.unsqueeze(1)).squeeze(1)
            loss = F.l1_loss(out, clean)
            for n in (32, 64):
                w = torch.hann_window(n)
                a = torch.stft(out, n, n // 4, window=w, return_complex=True).abs().clamp(min=1e-5)
                b = (
                    torch.stft(clean, n, n // 4, window=w, return_complex=True)
                    .abs()
                    .clamp(min=1e-5)
                )
                sc = torch.linalg.norm(b - a, dim=(1, 2)) / torch.linalg.norm(b, dim=(1, 2))
                loss = loss + sc.mean() + F.l1_loss(a.log(), b.log())
            return loss

    return Net(), ["float32[B,256]", "float32[B,256]"]


@program
def fresh_wavenet():
    class Net(nn.Module):
        def __init__(self, c=12):
            super().__init__()
            self.inp = nn.Conv1d(1, c, 1)
            self.dil = nn.ModuleList([nn.Conv1d(c, 2 * c, 2, dilation=2**i) for i in range(4)])
            self.res = nn.ModuleList([nn.Conv1d(c, c, 1) for _ in range(4)])
            self.skip = nn.ModuleList([nn.Conv1d(c, 16, 1) for _ in range(4)])
            self.end = nn.Conv1d(16, 32, 1)

        def forward(self, x):
            x, total = self.inp(x), 0
            for i, (d, r, s) in enumerate(zip(self.dil, self.res, self.skip)):
                f, g = d(F.pad(x, (2**i, 0))).chunk(2, 1)
                z = torch.tanh(f) * torch.sigmoid(g)
                total = total + s(z)
                x = r(z) + x
            return self.end(F.relu(total))

    return Net(), ["float32[B,1,64]"]


class TemporalBlock(nn.Module):
    def __init__(self, i, o, d):
        super().__init__()
        self.c1 = weight_norm(nn.Conv1d(i, o, 3, padding=2 * d, dilation=d))
        self.c2 = weight_norm(nn.Conv1d(o, o, 3, padding=2 * d, dilation=d))
        self.pad = 2 * d
        self.drop = nn.Dropout(0.2)
        self.down = nn.Conv1d(i, o, 1) if i != o else None

    def forward(self, x):
        y = self.drop(F.relu(self.c1(x)[:, :, : -self.pad].contiguous()))
        y = self.drop(F.relu(self.c2(y)[:, :, : -self.pad].contiguous()))
        return F.relu(y + (x if self.down is None else self.down(x)))


@program
def fresh_tcn_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Sequential(
                *[TemporalBlock(i, 12, 2**d) for d, i in enumerate((3, 12, 12))]
            )
            self.fc = nn.Linear(12, 4)

        def forward(self, x, y):
            return F.huber_loss(self.fc(self.net(x)[:, :, -1]), y, delta=0.5)

    return Net(), ["float32[B,3,30]", "float32[B,4]"]


@program
def fresh_lstm_seq2seq_loss():
    class Net(nn.Module):
        def __init__(self, h=16):
            super().__init__()
            self.enc = nn.LSTM(3, h, 2, batch_first=True, dropout=0.1)
            self.cell = nn.LSTMCell(3, h)
            self.out = nn.Linear(h, 3)

        def forward(self, x, y):
            _, (h, c) = self.enc(x)
            h, c = h[-1], c[-1]
            step, outs = x[:, -1], []
            for i in range(5):
                h, c = self.cell(step, (h, c))
                step = self.out(h)
                outs.append(step)
                step = y[:, i] if i % 2 else step
            return F.mse_loss(torch.stack(outs, 1), y)

    return Net(), ["float32[B,10,3]", "float32[B,5,3]"]


@program
def fresh_gru_attention():
    class Net(nn.Module):
        def __init__(self, h=12):
            super().__init__()
            self.embed = nn.Embedding(40, 10)
            self.enc = nn.GRU(10, h, bidirectional=True, batch_first=True)
            self.fc = nn.Linear(2 * h, h)
            self.w, self.u, self.v = (
                nn.Linear(h, h),
                nn.Linear(2 * h, h),
                nn.Linear(h, 1, bias=False),
            )
            self.cell = nn.GRUCell(10 + 2 * h, h)
            self.out = nn.Linear(3 * h, 40)

        def forward(self, src, tgt):
            memory, hidden = self.enc(self.embed(src))
            s = torch.tanh(self.fc(torch.cat((hidden[-2], hidden[-1]), 1)))
            keys, emb = self.u(memory), self.embed(tgt)
            mask = (src == 0).unsqueeze(-1)
            logits = []
            for t in range(4):
                e = self.v(torch.tanh(self.w(s).unsqueeze(1) + keys)).masked_fill(mask, -1e10)
                context = torch.bmm(F.softmax(e, 1).transpose(1, 2), memory).squeeze(1)
                s = self.cell(torch.cat((emb[:, t], context), 1), s)
                logits.append(self.out(torch.cat((s, context), 1)))
            return torch.stack(logits).transpose(0, 1)

    return Net(), ["int64[B,9]{0:40}", "int64[B,4]{0:40}"]


@program
def fresh_nbeats_loss():
    class Block(nn.Module):
        def __init__(self, back, fore):
            super().__init__()
            self.mlp = nn.Sequential(nn.Linear(back, 32), nn.ReLU(), nn.Linear(32, 32), nn.ReLU())
            self.theta = nn.Linear(32, 8)
            t = torch.linspace(0, 1, back + fore)
            self.register_buffer("basis", torch.stack([t**i for i in range(8)]))
            self.back = back

        def forward(self, x):
            y = self.theta(self.mlp(x)) @ self.basis
            return y[:, : self.back], y[:, self.back :]

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.blocks = nn.ModuleList([Block(20, 5) for _ in range(4)])

        def forward(self, x, y):
            level = x.abs().max(dim=1, keepdim=True).values
            residual, forecast = x / level, torch.zeros(x.shape[0], 5)
            for block in self.blocks:
                back, fore = block(residual)
                residual = residual - back
                forecast = forecast + fore
            forecast = forecast * level
            return 200 * ((y - forecast).abs() / (y.abs() + forecast.abs().detach() + 1e-8)).mean()

    return Net(), ["float32[B,20]", "float32[B,5]"]


@program
def fresh_patch_tst():
    """Reversible instance normalisation, patches by unfold."""

    class Net(nn.Module):
        def __init__(self, dim=16):
            super().__init__()
            self.w, self.b = nn.Parameter(torch.ones(3)), nn.Parameter(torch.zeros(3))
            self.embed, self.pos = nn.Linear(8, dim), nn.Parameter(torch.randn(8, dim) * 0.02)
            self.layer = nn.TransformerEncoderLayer(dim, 2, 32, 0.1, batch_first=True)
            self.head = nn.Linear(8 * dim, 6)
            self.trend = nn.Linear(32, 6)

        def forward(self, x):
            mean = x.mean(1, keepdim=True).detach()
            std = torch.sqrt(x.var(1, keepdim=True, unbiased=False) + 1e-5).detach()
            x = ((x - mean) / std * self.w + self.b).permute(0, 2, 1)
            trend = F.avg_pool1d(F.pad(x, (2, 2), mode="replicate"), 5, 1)
            z = F.pad(x - trend, (0, 4), mode="replicate").unfold(-1, 8, 4)
            b, c, n, _ = z.shape
            z = self.layer((self.embed(z) + self.pos).reshape(b * c, n, -1))
            z = self.head(z.reshape(b, c, -1)) + self.trend(trend)
            z = (z.permute(0, 2, 1) - self.b) / (self.w + 1e-10)
            return z * std + mean

    return Net(), ["float32[B,32,3]"]
