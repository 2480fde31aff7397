"""Traced recommenders, graphs, reinforcement learning, science, losses, dtypes
and norms, as people write them outside of this repository."""

import itertools

import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import orthogonal

from registry import program, record


@program
def fresh_deepfm_loss():
    class Net(nn.Module):
        def __init__(self, fields=(10, 20, 5), dim=8):
            super().__init__()
            self.linear, self.embed = nn.Embedding(sum(fields), 1), nn.Embedding(sum(fields), dim)
            offsets = torch.tensor([0, *torch.tensor(fields).cumsum(0)[:-1].tolist()])
            self.register_buffer("offsets", offsets)
            self.bias = nn.Parameter(torch.zeros(1))
            self.mlp = nn.Sequential(
                nn.Linear(3 * dim, 32),
                nn.BatchNorm1d(32),
                nn.ReLU(),
                nn.Dropout(0.2),
                nn.Linear(32, 1),
            )

        def forward(self, x, y):
            x = x + self.offsets.unsqueeze(0)
            e = self.embed(x)
            square = torch.sum(e, dim=1) ** 2
            fm = 0.5 * torch.sum(square - torch.sum(e**2, dim=1), dim=1, keepdim=True)
            first = torch.sum(self.linear(x), dim=1) + self.bias
            out = torch.sigmoid((first + fm + self.mlp(e.view(-1, 24))).squeeze(1))
            return F.binary_cross_entropy(out, y) + 1e-4 * self.embed.weight.norm()

    return Net(), ["int64[B,3]{0:5}", "float32[B]{0:1}"]


@program
def fresh_dlrm():
    class Net(nn.Module):
        def __init__(self, dim=8):
            super().__init__()
            self.bags = nn.ModuleList(
                [nn.EmbeddingBag(n, dim, mode="sum") for n in (30, 50)]
                + [nn.EmbeddingBag(40, dim, mode="mean")]
            )
            self.bottom = nn.Sequential(nn.Linear(5, 16), nn.ReLU(), nn.Linear(16, dim), nn.ReLU())
            self.top = nn.Sequential(nn.Linear(dim + 6, 16), nn.ReLU(), nn.Linear(16, 1))
            i, j = torch.tril_indices(4, 4, -1)
            self.register_buffer("i", i)
            self.register_buffer("j", j)

        def forward(self, dense, a, b, c):
            x = self.bottom(dense)
            parts = [x] + [bag(ids) for bag, ids in zip(self.bags, (a, b, c))]
            t = torch.stack(parts, 1)
            z = torch.bmm(t, t.transpose(1, 2))[:, self.i, self.j]
            return torch.sigmoid(self.top(torch.cat([x, z], 1)))

    return Net(), ["float32[B,5]", "int64[B,3]{0:30}", "int64[B,2]{0:50}", "int64[B,4]{0:40}"]


@program
def fresh_two_tower_loss():
    """Negatives are the others of the batch."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.user, self.item = nn.Embedding(50, 12), nn.Embedding(80, 12)
            self.u, self.i = nn.Linear(15, 8), nn.Linear(12, 8)
            self.register_buffer("logq", torch.randn(80))

        def forward(self, user, feats, item):
            u = F.normalize(self.u(torch.cat([self.user(user), feats], 1)), dim=1)
            v = F.normalize(self.i(self.item(item)), p=2, dim=-1)
            logits = torch.mm(u, v.t()) / 0.05 - self.logq[item]
            return F.cross_entropy(logits, torch.arange(user.size(0)))

    return Net(), ["int64[B]{0:50}", "float32[B,3]", "int64[B]{0:80}"]


@program
def fresh_din():
    """Attention over a history with a mask, and an auxiliary loss."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.item = nn.Embedding(60, 8, padding_idx=0)
            self.att = nn.Sequential(nn.Linear(32, 16), nn.PReLU(), nn.Linear(16, 1))
            self.fc = nn.Sequential(nn.Linear(16, 16), nn.PReLU(), nn.Linear(16, 1))

        def forward(self, history, target):
            h, t = self.item(history), self.item(target)
            q = t.unsqueeze(1).expand_as(h)
            w = self.att(torch.cat([q, h, q - h, q * h], -1)).squeeze(-1)
            w = w.masked_fill(history.eq(0), float("-inf")).nan_to_num(neginf=-1e9).softmax(-1)
            pooled = torch.matmul(w.unsqueeze(1), h).squeeze(1)
            return self.fc(torch.cat([pooled, t], 1)).squeeze(-1)

    return Net(), ["int64[B,7]{0:60}", "int64[B]{1:60}"]


@program
def fresh_gcn():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.w1, self.w2, self.fc = nn.Linear(6, 16), nn.Linear(16, 16), nn.Linear(16, 3)

        def forward(self, x, adj):
            a = (adj + adj.transpose(1, 2)) / 2 + torch.eye(adj.size(-1)).unsqueeze(0)
            d = a.sum(-1).pow(-0.5)
            a = d.unsqueeze(-1) * a * d.unsqueeze(-2)
            h = F.relu(torch.bmm(a, self.w1(x)))
            h = F.dropout(h, 0.5, self.training)
            h = torch.bmm(a, self.w2(h))
            return self.fc(
                torch.cat([h.mean(1, keepdim=True), h.max(1, keepdim=True)[0]], 1).sum(1)
            )

    return Net(), ["float32[B,9,6]", "float32[B,9,9]{0:1}"]


@program
def fresh_gat():
    class Net(nn.Module):
        def __init__(self, heads=2, out=8):
            super().__init__()
            self.heads, self.out = heads, out
            self.w = nn.Linear(6, heads * out, bias=False)
            self.a1, self.a2 = (nn.Parameter(torch.randn(heads, out)) for _ in range(2))
            self.fc = nn.Linear(heads * out, 4)

        def forward(self, x, adj):
            b, n, _ = x.shape
            h = self.w(x).view(b, n, self.heads, self.out)
            s, t = (h * self.a1).sum(-1), (h * self.a2).sum(-1)
            e = F.leaky_relu(s.unsqueeze(2) + t.unsqueeze(1), 0.2)
            e = torch.where(adj.unsqueeze(-1) > 0.3, e, torch.tensor(-9e15))
            a = F.dropout(F.softmax(e, dim=2), 0.3, self.training)
            h = torch.einsum("bijh,bjhd->bihd", a, h).reshape(b, n, -1)
            return F.log_softmax(self.fc(F.elu(h)), -1)

    return Net(), ["float32[B,9,6]", "float32[B,9,9]{0:1}"]


@program
def fresh_message_passing():
    """Nodes of all graphs in one table, edges by index_add and scatter_reduce."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.edge = nn.Sequential(nn.Linear(14, 16), nn.ReLU(), nn.Linear(16, 8))
            self.node = nn.GRUCell(8, 6)
            self.fc = nn.Linear(14, 2)

        def forward(self, x, src, dst, attr):
            for _ in range(2):
                m = self.edge(torch.cat([x[src], x[dst], attr], 1))
                agg = torch.zeros(x.size(0), 8).index_add_(0, dst, m)
                x = self.node(agg, x)
            most = torch.zeros_like(agg).scatter_reduce(
                0, dst.unsqueeze(-1).expand_as(m), m, "amax", include_self=False
            )
            return self.fc(torch.cat([x, most], 1))

    return Net(), [
        "float32[4*B,6]",
        "int64[6*B]{0:4*B}",
        "int64[6*B]{0:4*B}",
        "float32[6*B,2]",
    ]


@program
def fresh_ppo_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.actor = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 4))
            self.critic = nn.Sequential(nn.Linear(8, 32), nn.Tanh(), nn.Linear(32, 1))

        def forward(self, obs, action, old, adv, ret, old_value):
            logits = self.actor(obs)
            logits = logits - logits.logsumexp(-1, keepdim=True)
            logp = logits.gather(-1, action.long().unsqueeze(-1)).squeeze(-1)
            entropy = -(logits * logits.exp()).sum(-1)
            ratio = (logp - old).exp()
            adv = (adv - adv.mean()) / (adv.std() + 1e-8)
            pg = torch.max(-adv * ratio, -adv * torch.clamp(ratio, 0.8, 1.2)).mean()
            value = self.critic(obs).view(-1)
            clipped = old_value + torch.clamp(value - old_value, -0.2, 0.2)
            v = 0.5 * torch.max((value - ret) ** 2, (clipped - ret) ** 2).mean()
            return pg - 0.01 * entropy.mean() + 0.5 * v

    return Net(), [
        "float32[B,8]",
        "int64[B]{0:4}",
        "float32[B]{-2:0}",
        "float32[B]",
        "float32[B]",
        "float32[B]",
    ]


@program
def fresh_distributions():
    """torch.distributions as actors use them."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.mu, self.fc = nn.Linear(8, 3), nn.Linear(8, 5)
            self.log_std = nn.Parameter(torch.zeros(3))

        def forward(self, obs, action, choice):
            mean = self.mu(obs)
            n = torch.distributions.Normal(mean, self.log_std.exp().expand_as(mean))
            c = torch.distributions.Categorical(logits=self.fc(obs))
            return (
                n.log_prob(action).sum(-1) + c.log_prob(choice),
                n.entropy().sum(-1) + c.entropy(),
            )

    return Net(), ["float32[B,8]", "float32[B,3]", "int64[B]{0:5}"]


@program
def fresh_c51_loss():
    class Net(nn.Module):
        def __init__(self, atoms=11, actions=3):
            super().__init__()
            self.atoms, self.actions = atoms, actions
            self.q = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, atoms * actions))
            self.t = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, atoms * actions))
            self.register_buffer("support", torch.linspace(-5, 5, atoms))

        def dist(self, net, s):
            return F.softmax(net(s).view(-1, self.actions, self.atoms), dim=-1).clamp(min=1e-3)

        def forward(self, state, action, reward, following, done):
            b = state.size(0)
            with torch.no_grad():
                p = self.dist(self.t, following)
                best = (p * self.support).sum(-1).argmax(1)
                p = p[torch.arange(b), best]
                tz = (reward.unsqueeze(1) + 0.99 * (1 - done.unsqueeze(1)) * self.support).clamp(
                    -5, 5
                )
                pos = (tz + 5) / 1.0
                low, up = pos.floor().long(), pos.ceil().long()
                offset = (
                    torch.linspace(0, (b - 1) * self.atoms, b)
                    .long()
                    .unsqueeze(1)
                    .expand(b, self.atoms)
                )
                m = torch.zeros(b, self.atoms)
                m.view(-1).index_add_(0, (low + offset).view(-1), (p * (up.float() - pos)).view(-1))
                m.view(-1).index_add_(0, (up + offset).view(-1), (p * (pos - low.float())).view(-1))
            logp = torch.log(self.dist(self.q, state)[torch.arange(b), action])
            return -(m * logp).sum(1).mean()

    return Net(), [
        "float32[B,6]",
        "int64[B]{0:3}",
        "float32[B]",
        "float32[B,6]",
        "float32[B]{0:1}",
    ]


@program
def fresh_sac_actor_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.body = nn.Sequential(nn.Linear(6, 32), nn.ReLU(), nn.Linear(32, 4))
            self.q1, self.q2 = (
                nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Linear(32, 1)) for _ in range(2)
            )
            self.log_alpha = nn.Parameter(torch.zeros(1))

        def forward(self, obs, noise):
            mu, log_std = self.body(obs).chunk(2, dim=-1)
            log_std = torch.clamp(log_std, -20, 2)
            u = mu + log_std.exp() * noise
            a = torch.tanh(u)
            logp = (-0.5 * noise.pow(2) - log_std - 0.9189385).sum(-1)
            logp = logp - (2 * (0.6931472 - u - F.softplus(-2 * u))).sum(-1)
            sa = torch.cat([obs, a], -1)
            q = torch.min(self.q1(sa), self.q2(sa)).squeeze(-1)
            return (self.log_alpha.exp().detach() * logp - q).mean()

    return Net(), ["float32[B,6]", "float32[B,2]"]


@program
def fresh_neural_ode():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(5, 24), nn.Tanh(), nn.Linear(24, 4))

        def rhs(self, t, y):
            return self.f(torch.cat([y, t.expand(y.size(0), 1)], 1))

        def forward(self, y):
            ts = torch.linspace(0.0, 1.0, 6)
            out = [y]
            for t0, t1 in itertools.pairwise(ts):
                h = t1 - t0
                k1 = self.rhs(t0, y)
                k2 = self.rhs(t0 + h / 2, y + h * k1 / 2)
                k3 = self.rhs(t0 + h / 2, y + h * k2 / 2)
                k4 = self.rhs(t1, y + h * k3)
                y = y + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
                out.append(y)
            return torch.stack(out, 1)

    return Net(), ["float32[B,4]"]


@program
def fresh_fno_loss():
    class Spectral(nn.Module):
        def __init__(self, c, m):
            super().__init__()
            self.m = m
            self.w1, self.w2 = (
                nn.Parameter(torch.rand(c, c, m, m, dtype=torch.cfloat) / (c * c)) for _ in range(2)
            )

        def forward(self, x):
            b, m = x.shape[0], self.m
            ft = torch.fft.rfft2(x)
            out = torch.zeros(b, x.size(1), x.size(-2), x.size(-1) // 2 + 1, dtype=torch.cfloat)
            out[:, :, :m, :m] = torch.einsum("bixy,ioxy->boxy", ft[:, :, :m, :m], self.w1)
            out[:, :, -m:, :m] = torch.einsum("bixy,ioxy->boxy", ft[:, :, -m:, :m], self.w2)
            return torch.fft.irfft2(out, s=(x.size(-2), x.size(-1)))

    class Net(nn.Module):
        def __init__(self, c=8):
            super().__init__()
            self.lift = nn.Linear(3, c)
            self.spec = nn.ModuleList([Spectral(c, 4) for _ in range(2)])
            self.w = nn.ModuleList([nn.Conv2d(c, c, 1) for _ in range(2)])
            self.q = nn.Sequential(nn.Linear(c, 16), nn.GELU(), nn.Linear(16, 1))

        def grid(self, shape):
            b, sx, sy = shape[0], shape[1], shape[2]
            gx = torch.linspace(0, 1, 12).reshape(1, 12, 1, 1).repeat([b, 1, sy, 1])
            gy = torch.linspace(0, 1, 12).reshape(1, 1, 12, 1).repeat([b, sx, 1, 1])
            return torch.cat((gx, gy), dim=-1)

        def forward(self, a, u):
            x = torch.cat((a, self.grid(a.shape)), -1)
            x = self.lift(x).permute(0, 3, 1, 2)
            for s, w in zip(self.spec, self.w):
                x = F.gelu(s(x) + w(x))
            out = self.q(x.permute(0, 2, 3, 1))
            d = (out - u).reshape(u.size(0), -1).norm(2, 1)
            return (d / u.reshape(u.size(0), -1).norm(2, 1)).mean()

    return Net(), ["float32[B,12,12,1]", "float32[B,12,12,1]"]


@program
def fresh_pinn_loss():
    """Derivatives by central differences."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("freq", torch.randn(2, 8))
            self.l1, self.l2, self.l3 = nn.Linear(16, 24), nn.Linear(24, 24), nn.Linear(24, 1)

        def u(self, xt):
            p = xt @ self.freq
            h = torch.cat([p.sin(), p.cos()], -1)
            h = torch.sin(30 * self.l1(h))
            return self.l3(torch.sin(self.l2(h)))

        def forward(self, xt, x0):
            e, dx, dt = 1e-2, torch.tensor([[1e-2, 0.0]]), torch.tensor([[0.0, 1e-2]])
            u = self.u(xt)
            up, um = self.u(xt + dx), self.u(xt - dx)
            ut = (self.u(xt + dt) - self.u(xt - dt)) / (2 * e)
            res = ut + u * (up - um) / (2 * e) - 0.01 * (up - 2 * u + um) / e**2
            start = F.pad(x0, (0, 1))
            return res.pow(2).mean() + (self.u(start) + torch.sin(3.14159 * x0)).pow(2).mean()

    return Net(), ["float32[B,2]{0:1}", "float32[B,1]{0:1}"]


class MAB(nn.Module):
    def __init__(self, q, k, v, heads, ln=True):
        super().__init__()
        self.v, self.heads = v, heads
        self.fq, self.fk, self.fv, self.fo = (
            nn.Linear(q, v),
            nn.Linear(k, v),
            nn.Linear(k, v),
            nn.Linear(v, v),
        )
        self.l0, self.l1 = nn.LayerNorm(v), nn.LayerNorm(v)

    def forward(self, q, k):
        q, k, v = self.fq(q), self.fk(k), self.fv(k)
        s = self.v // self.heads
        q_, k_, v_ = (torch.cat(t.split(s, 2), 0) for t in (q, k, v))
        a = torch.softmax(q_.bmm(k_.transpose(1, 2)) / self.v**0.5, 2)
        o = torch.cat((q_ + a.bmm(v_)).chunk(self.heads, 0), 2)
        o = self.l0(o)
        return self.l1(o + F.relu(self.fo(o)))


@program
def fresh_set_transformer():
    """Heads are stacked along the batch and split off it."""

    class Net(nn.Module):
        def __init__(self, d=16):
            super().__init__()
            self.i = nn.Parameter(torch.randn(1, 4, d))
            self.m0, self.m1 = MAB(d, 3, d, 2), MAB(3, d, d, 2)
            self.s = nn.Parameter(torch.randn(1, 2, d))
            self.pma = MAB(d, d, d, 2)
            self.fc = nn.Linear(2 * d, 4)

        def forward(self, x):
            h = self.m0(self.i.repeat(x.size(0), 1, 1), x)
            x = self.m1(x, h)
            return self.fc(self.pma(self.s.repeat(x.size(0), 1, 1), x).flatten(1))

    return Net(), ["float32[B,10,3]"]


@program
def fresh_capsule_loss():
    def squash(s):
        n = (s**2).sum(-1, keepdim=True)
        return n / (1 + n) * s / torch.sqrt(n + 1e-8)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.prim = nn.Conv2d(1, 8, 5), nn.Conv2d(8, 16, 5, 2)
            self.w = nn.Parameter(0.1 * torch.randn(1, 4, 64, 6, 4))

        def forward(self, x, y):
            u = self.prim(F.relu(self.conv(x)))
            u = squash(u.view(u.size(0), 4, 4, -1).permute(0, 1, 3, 2).reshape(u.size(0), -1, 4))
            hat = torch.matmul(self.w, u[:, None, :, :, None]).squeeze(-1)
            fixed = hat.detach()
            b = torch.zeros(x.size(0), 4, hat.size(2), 1)
            for i in range(2):
                c = F.softmax(b, dim=1)
                v = squash((c * fixed).sum(2))
                b = b + torch.matmul(fixed, v.unsqueeze(-1))
            v = squash((F.softmax(b, dim=1) * hat).sum(2))
            length = v.norm(dim=-1)
            hot = F.one_hot(y, 4).float()
            left, right = F.relu(0.9 - length) ** 2, F.relu(length - 0.1) ** 2
            return (hot * left + 0.5 * (1 - hot) * right).sum(1).mean()

    return Net(), ["float32[B,1,16,16]", "int64[B]{0:4}"]


class SmallConv(nn.Module):
    def __init__(self, out=16):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv2d(3, 8, 3, 2, 1),
            nn.BatchNorm2d(8),
            nn.ReLU(inplace=True),
            nn.Conv2d(8, 16, 3, 2, 1),
            nn.BatchNorm2d(16),
            nn.ReLU(inplace=True),
            nn.AdaptiveAvgPool2d((1, 1)),
            nn.Flatten(1),
            nn.Linear(16, out),
        )

    def forward(self, x):
        return self.net(x)


@program
def fresh_triplet_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = SmallConv()
            self.loss = nn.TripletMarginLoss(margin=0.5, p=2)

        def forward(self, a, p, n):
            a, p, n = (F.normalize(self.net(x)) for x in (a, p, n))
            y = torch.ones(a.shape[0])
            return (
                self.loss(a, p, n)
                + F.cosine_embedding_loss(a, p, y)
                + F.margin_ranking_loss((a * p).sum(1), (a * n).sum(1), y, margin=0.1)
            )

    return Net(), ["float32[B,3,16,16]"] * 3


@program
def fresh_simclr_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = SmallConv(16)
            self.proj = nn.Sequential(nn.ReLU(), nn.Linear(16, 8))

        def forward(self, x1, x2):
            n = x1.size(0)
            z = F.normalize(self.proj(self.net(torch.cat([x1, x2], 0))), dim=1)
            sim = torch.matmul(z, z.T) / 0.5
            sim = sim.masked_fill(torch.eye(2 * n, dtype=torch.bool), -9e15)
            target = torch.cat([torch.arange(n, 2 * n), torch.arange(n)])
            return F.cross_entropy(sim, target)

    return Net(), ["float32[B,3,16,16]", "float32[B,3,16,16]"]


@program
def fresh_barlow_loss():
    """Correlations over the batch, in training mode."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.bn = SmallConv(16), nn.BatchNorm1d(16, affine=False)

        def forward(self, x1, x2):
            c = self.bn(self.net(x1)).T @ self.bn(self.net(x2)) / x1.shape[0]
            on = torch.diagonal(c).add_(-1).pow_(2).sum()
            n = c.shape[0]
            off = c.flatten()[:-1].view(n - 1, n + 1)[:, 1:].flatten().pow_(2).sum()
            return on + 0.005 * off

    return record(Net(), ["float32[B,3,16,16]", "float32[B,3,16,16]"], training=True)


@program
def fresh_momentum_contrast():
    """A key encoder that follows, and a queue that is written."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.q, self.k = SmallConv(8), SmallConv(8)
            for p in self.k.parameters():
                p.requires_grad = False
            self.register_buffer("queue", F.normalize(torch.randn(8, 32), dim=0))

        def forward(self, a, b):
            q = F.normalize(self.q(a), dim=1)
            with torch.no_grad():
                for p, k in zip(self.q.parameters(), self.k.parameters()):
                    k.data = k.data * 0.99 + p.data * 0.01
                k = F.normalize(self.k(b), dim=1)
            pos = torch.einsum("nc,nc->n", [q, k]).unsqueeze(-1)
            neg = torch.einsum("nc,ck->nk", [q, self.queue.clone().detach()])
            logits = torch.cat([pos, neg], dim=1) / 0.07
            return F.cross_entropy(logits, torch.zeros(logits.shape[0], dtype=torch.long))

    return Net(), ["float32[B,3,16,16]", "float32[B,3,16,16]"]


@program
def fresh_distillation_loss():
    class Net(nn.Module):
        def __init__(self, t=4.0):
            super().__init__()
            self.teacher, self.student, self.t = SmallConv(10), SmallConv(10), t

        def forward(self, x, y):
            with torch.no_grad():
                teacher = self.teacher(x)
            s = self.student(x)
            soft = nn.KLDivLoss(reduction="batchmean")(
                F.log_softmax(s / self.t, dim=1), F.softmax(teacher / self.t, dim=1)
            )
            hard = F.cross_entropy(s, y, label_smoothing=0.1)
            return 0.7 * self.t**2 * soft + 0.3 * hard

    return Net(), ["float32[B,3,16,16]", "int64[B]{0:10}"]


@program
def fresh_focal_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = SmallConv(6)
            self.register_buffer("alpha", torch.rand(6))

        def forward(self, x, y, multi):
            logits = self.net(x)
            ce = F.cross_entropy(logits, y, weight=self.alpha, reduction="none")
            focal = ((1 - torch.exp(-ce)) ** 2 * ce).mean()
            p = torch.sigmoid(logits)
            bce = F.binary_cross_entropy_with_logits(
                logits, multi, reduction="none", pos_weight=self.alpha
            )
            pt = p * multi + (1 - p) * (1 - multi)
            at = 0.25 * multi + 0.75 * (1 - multi)
            return focal + (at * bce * (1 - pt).pow(2)).sum() / x.shape[0]

    return Net(), ["float32[B,3,16,16]", "int64[B]{0:6}", "float32[B,6]{0:1}"]


@program
def fresh_vae_loss():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.fc1, self.mu, self.lv = nn.Linear(64, 32), nn.Linear(32, 4), nn.Linear(32, 4)
            self.fc3, self.fc4 = nn.Linear(4, 32), nn.Linear(32, 64)

        def forward(self, x):
            h = F.relu(self.fc1(x.view(-1, 64)))
            mu, lv = self.mu(h), self.lv(h)
            std = torch.exp(0.5 * lv)
            z = mu + torch.randn_like(std) * std
            out = torch.sigmoid(self.fc4(F.relu(self.fc3(z))))
            bce = F.binary_cross_entropy(out, x.view(-1, 64), reduction="sum")
            return bce - 0.5 * torch.sum(1 + lv - mu.pow(2) - lv.exp())

    return Net(), ["float32[B,1,8,8]{0:1}"]


@program
def fresh_bfloat16_block():
    class Net(nn.Module):
        def __init__(self, d=32):
            super().__init__()
            self.n, self.qkv, self.o = nn.LayerNorm(d), nn.Linear(d, 3 * d), nn.Linear(d, d)
            self.mlp = nn.Sequential(
                nn.Linear(d, 64), nn.GELU(approximate="tanh"), nn.Linear(64, d)
            )

        def forward(self, x):
            x = x.to(torch.bfloat16)
            b, t, d = x.shape
            q, k, v = self.qkv(self.n(x)).view(b, t, 3, 4, d // 4).permute(2, 0, 3, 1, 4)
            a = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            x = x + self.o(a.transpose(1, 2).reshape(b, t, d))
            return (x + self.mlp(x)).float()

    return Net().to(torch.bfloat16), ["float32[B,8,32]"]


@program
def fresh_autocast_loss():
    """Under autocast for the CPU."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = SmallConv(10)

        def forward(self, x, y):
            with torch.autocast("cpu", dtype=torch.bfloat16):
                logits = self.net(x)
            return F.cross_entropy(logits.float(), y)

    return Net(), ["float32[B,3,16,16]", "int64[B]{0:10}"]


@program
def fresh_float64_gaussians():
    """A mixture density network with full covariances by Cholesky factors."""

    class Net(nn.Module):
        def __init__(self, k=3, d=2):
            super().__init__()
            self.k, self.d = k, d
            self.net = nn.Sequential(nn.Linear(4, 16), nn.Softplus(), nn.Linear(16, k * 6)).double()

        def forward(self, x, y):
            out = self.net(x).view(-1, self.k, 6)
            logpi, mu, raw = out[..., 0].log_softmax(-1), out[..., 1:3], out[..., 3:]
            diag = F.softplus(raw[..., :2]) + 1e-3
            low = torch.diag_embed(diag) + F.pad(raw[..., 2:, None], (0, 1, 1, 0))
            delta = (y.unsqueeze(1) - mu).unsqueeze(-1)
            z = torch.linalg.solve_triangular(low, delta, upper=False).squeeze(-1)
            logp = -0.5 * z.pow(2).sum(-1) - diag.log().sum(-1) - 1.8378770664
            return -torch.logsumexp(logpi + logp, -1).mean()

    return Net(), ["float64[B,4]", "float64[B,2]"]


@program
def fresh_gaussian_process():
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = nn.Linear(3, 2).double()
            self.scale = nn.Parameter(torch.ones(1, dtype=torch.float64))

        def kernel(self, a, b):
            return torch.exp(-0.5 * torch.cdist(a, b).pow(2) / self.scale**2)

        def forward(self, x, y, new):
            x, new = self.net(x), self.net(new)
            k = self.kernel(x, x) + 0.1 * torch.eye(6, dtype=torch.float64)
            low = torch.linalg.cholesky(k)
            alpha = torch.cholesky_solve(y.unsqueeze(-1), low)
            ks = self.kernel(x, new)
            mean = (ks.transpose(1, 2) @ alpha).squeeze(-1)
            v = torch.linalg.solve_triangular(low, ks, upper=False)
            nll = 0.5 * (y * alpha.squeeze(-1)).sum(-1) + low.diagonal(dim1=-2, dim2=-1).log().sum(
                -1
            )
            return mean, 1 - v.pow(2).sum(1), nll

    return Net(), ["float64[B,6,3]", "float64[B,6]", "float64[B,4,3]"]


@program
def fresh_norms():
    class StdConv(nn.Conv2d):
        def forward(self, x):
            w = self.weight
            v, m = torch.var_mean(w, dim=[1, 2, 3], keepdim=True, unbiased=False)
            return F.conv2d(x, (w - m) / torch.sqrt(v + 1e-5), self.bias, self.stride, self.padding)

    net = nn.Sequential(
        StdConv(3, 8, 3, padding=1),
        nn.GroupNorm(2, 8),
        nn.Mish(),
        nn.Conv2d(8, 8, 3, padding=1, padding_mode="reflect"),
        nn.InstanceNorm2d(8, affine=True),
        nn.Hardtanh(),
        nn.LocalResponseNorm(3),
        nn.Flatten(),
        orthogonal(nn.Linear(8 * 64, 4)),
    )
    return net, ["float32[B,3,8,8]"]


@program
def fresh_kan():
    """Splines on every edge."""

    class Layer(nn.Module):
        def __init__(self, i, o, grid=4, order=2):
            super().__init__()
            self.order = order
            h = 2 / grid
            g = (torch.arange(-order, grid + order + 1) * h - 1).expand(i, -1).contiguous()
            self.register_buffer("grid", g)
            self.base = nn.Parameter(torch.randn(o, i) * 0.1)
            self.spline = nn.Parameter(torch.randn(o, i, grid + order) * 0.1)

        def bases(self, x):
            x = x.unsqueeze(-1)
            g = self.grid
            b = ((x >= g[:, :-1]) & (x < g[:, 1:])).to(x.dtype)
            for k in range(1, self.order + 1):
                b = (x - g[:, : -(k + 1)]) / (g[:, k:-1] - g[:, : -(k + 1)]) * b[:, :, :-1] + (
                    g[:, k + 1 :] - x
                ) / (g[:, k + 1 :] - g[:, 1:(-k)]) * b[:, :, 1:]
            return b.contiguous()

        def forward(self, x):
            out = F.linear(F.silu(x), self.base)
            return out + F.linear(
                self.bases(x).view(x.size(0), -1), self.spline.view(len(self.spline), -1)
            )

    return nn.Sequential(Layer(4, 8), Layer(8, 3)), ["float32[B,4]{-1:1}"]


@program
def fresh_nerf():
    """Points along rays, positional encoding, alpha compositing."""

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("bands", 2.0 ** torch.arange(4))
            self.mlp = nn.Sequential(nn.Linear(27, 32), nn.ReLU(), nn.Linear(32, 4))

        def forward(self, origin, direction, color):
            t = torch.linspace(2.0, 6.0, 8)
            t = t.expand(origin.shape[0], 8)
            mids = 0.5 * (t[..., 1:] + t[..., :-1])
            upper, lower = torch.cat([mids, t[..., -1:]], -1), torch.cat([t[..., :1], mids], -1)
            t = lower + (upper - lower) * torch.rand(t.shape)
            p = origin[..., None, :] + direction[..., None, :] * t[..., :, None]
            e = (p[..., None, :] * self.bands[:, None]).flatten(-2)
            raw = self.mlp(torch.cat([p, e.sin(), e.cos()], -1))
            dist = t[..., 1:] - t[..., :-1]
            dist = torch.cat([dist, torch.tensor([1e10]).expand(dist[..., :1].shape)], -1)
            dist = dist * torch.norm(direction[..., None, :], dim=-1)
            alpha = 1.0 - torch.exp(-F.relu(raw[..., 3]) * dist)
            trans = torch.cumprod(
                torch.cat([torch.ones((alpha.shape[0], 1)), 1.0 - alpha + 1e-10], -1), -1
            )[:, :-1]
            weight = alpha * trans
            rgb = torch.sum(weight[..., None] * torch.sigmoid(raw[..., :3]), -2)
            depth = torch.sum(weight * t, -1)
            loss = F.mse_loss(rgb, color)
            return loss, -10.0 * torch.log(loss) / torch.log(torch.tensor([10.0])), depth

    return Net(), ["float32[B,3]", "float32[B,3]", "float32[B,3]{0:1}"]


@program
def fresh_pointnet_loss():
    class TNet(nn.Module):
        def __init__(self, k):
            super().__init__()
            self.k = k
            self.conv, self.fc = nn.Conv1d(k, 16, 1), nn.Linear(16, k * k)

        def forward(self, x):
            h = torch.max(F.relu(self.conv(x)), 2, keepdim=True)[0].view(-1, 16)
            iden = torch.eye(self.k).flatten().view(1, -1).repeat(x.size(0), 1)
            return (self.fc(h) + iden).view(-1, self.k, self.k)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t1, self.t2 = TNet(3), TNet(8)
            self.c1, self.c2 = nn.Conv1d(3, 8, 1), nn.Conv1d(8, 32, 1)
            self.b1 = nn.BatchNorm1d(8)
            self.fc = nn.Linear(32, 5)

        def forward(self, pts, y):
            x = torch.bmm(pts.transpose(2, 1), self.t1(pts)).transpose(2, 1)
            x = F.relu(self.b1(self.c1(x)))
            t = self.t2(x)
            x = torch.bmm(x.transpose(2, 1), t).transpose(2, 1)
            out = self.fc(torch.max(self.c2(x), 2)[0])
            eye = torch.eye(8)[None, :, :]
            reg = torch.mean(torch.norm(torch.bmm(t, t.transpose(2, 1)) - eye, dim=(1, 2)))
            # k nearest neighbours, as DGCNN has them.
            inner = -2 * torch.matmul(pts.transpose(2, 1), pts)
            xx = torch.sum(pts**2, dim=1, keepdim=True)
            near = (-xx - inner - xx.transpose(2, 1)).topk(k=3, dim=-1)[1]
            base = torch.arange(0, pts.size(0)).view(-1, 1, 1) * 10
            flat = pts.transpose(2, 1).reshape(-1, 3)[(near + base).view(-1), :]
            edge = flat.view(-1, 10, 3, 3) - pts.transpose(2, 1).unsqueeze(2)
            return F.nll_loss(F.log_softmax(out, 1), y) + 1e-3 * reg + edge.abs().mean()

    return Net(), ["float32[B,3,10]", "int64[B]{0:5}"]
