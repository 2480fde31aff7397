"""Ways to trace and to return that no rule was made with."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program, record


@program
def unseen_half_with_float_parts():
    """Half precision, with norms and the softmax in single precision."""

    def forward(self, x):
        y = self.one(x.half())
        y = F.layer_norm(y.float(), (24,)).half()
        q, k, v = self.qkv(y).chunk(3, -1)
        weights = (q.float() @ k.float().transpose(1, 2) / 5).softmax(-1).half()
        y = torch.bmm(weights, v)
        return self.two(F.gelu(y)).float()

    return network(
        forward,
        one=nn.Linear(16, 24).half(),
        qkv=nn.Linear(24, 72).half(),
        two=nn.Linear(24, 8).half(),
    ), ["float32[B,7,16]"]


@program
def unseen_written_residuals():
    """Sums and scales written over what they read."""

    def forward(self, x):
        y = self.one(x)
        y += x
        y *= self.scale
        z = self.two(y)
        z.add_(y, alpha=0.5).clamp_(min=-2)
        z[:, :, 0] = y[:, :, -1]
        z[:, 1::2].mul_(2.0)
        w = F.dropout(z.softmax(-1), 0.1, self.training)
        w.masked_fill_(w < 0.05, 0)
        w /= w.sum(-1, keepdim=True)
        return w, torch.relu_(z - 1)

    return network(
        forward, one=nn.Linear(12, 12), two=nn.Linear(12, 12), scale=nn.Parameter(torch.randn(12))
    ), ["float32[B,6,12]"]


@program
def unseen_nested_outputs():
    """A tuple of dicts and tuples."""

    def forward(self, x):
        hidden = []
        for layer in self.layers:
            x = torch.tanh(layer(x))
            hidden.append(x)
        last = {"hidden": hidden[-1], "mean": torch.stack(hidden).mean(0)}
        return last, tuple(hidden), (x.argmax(-1), (x > 0).sum(-1))

    return record(
        network(forward, layers=nn.ModuleList(nn.Linear(9, 9) for _ in range(3))),
        ["float32[B,9]"],
    )


@program
def unseen_metric_learning():
    def forward(self, anchor, positive, label):
        a, p = self.net(anchor), self.net(positive)
        distances = torch.cdist(a, p)
        same = label.unsqueeze(0) == label.unsqueeze(1)
        hardest = distances.masked_fill(same, float("inf")).min(1).values
        own = distances.diagonal()
        loss = F.relu(own - hardest.clamp(max=10) + 0.3).mean()
        cosine = F.cosine_similarity(a, p)
        margin = torch.cos(torch.acos(cosine.clamp(-0.99, 0.99)) + 0.2)
        return loss, margin

    return network(forward, net=nn.Sequential(nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 5))), [
        "float32[B,7]",
        "float32[B,7]",
        "int64[B]{0:3}",
    ]


@program
def unseen_actor_critic():
    """A policy with its entropy and a clipped ratio."""

    def forward(self, state, action, old, advantage):
        hidden = self.body(state)
        logits = self.policy(hidden)
        log_probs = logits - logits.logsumexp(-1, keepdim=True)
        entropy = -(log_probs.exp() * log_probs).sum(-1)
        chosen = log_probs.gather(-1, action.unsqueeze(-1)).squeeze(-1)
        ratio = (chosen - old).exp()
        clipped = torch.clamp(ratio, 0.8, 1.2) * advantage
        objective = torch.min(ratio * advantage, clipped)
        value = self.value(hidden).squeeze(-1)
        return -(objective + 0.01 * entropy).mean(), F.smooth_l1_loss(value, advantage)

    return network(
        forward,
        body=nn.Sequential(nn.Linear(8, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh()),
        policy=nn.Linear(16, 5),
        value=nn.Linear(16, 1),
    ), ["float32[B,8]", "int64[B]{0:5}", "float32[B]", "float32[B]"]


@program
def unseen_speech_loss():
    """Alignment by CTC."""

    def forward(self, x, target, lengths):
        y, _ = self.gru(x)
        log_probs = self.head(y).log_softmax(-1).transpose(0, 1)
        size = torch.full((x.size(0),), x.size(1), dtype=torch.long)
        return F.ctc_loss(log_probs, target, size, lengths, zero_infinity=True)

    return network(forward, gru=nn.GRU(6, 8, batch_first=True), head=nn.Linear(8, 10)), [
        "float32[B,12,6]",
        "int64[B,4]{1:10}",
        "int64[B]{1:5}",
    ]
