"""A service in bfloat16: products, attention and an MLP, within half the memory."""

# points: 11, 2
# catches: silent, wrong, keeps

import torch
from torch import nn

BUDGET = 512 << 10


class Block(nn.Module):
    def __init__(self):
        super().__init__()
        self.query, self.key, self.value = (nn.Linear(32, 32) for _ in range(3))
        self.layers = nn.Sequential(nn.Linear(32, 128), nn.GELU(), nn.Linear(128, 4))

    def forward(self, x):
        scores = torch.bmm(self.query(x), self.key(x).transpose(1, 2)) * 0.2
        x = x + torch.bmm(scores.softmax(-1), self.value(x))
        return self.layers(x.mean(1)) + x.matmul(self.query.weight[:, :4]).sum(1)


def application(koila, app):
    torch.manual_seed(0)
    mlp = nn.Sequential(nn.Linear(32, 512), nn.ReLU(), nn.Linear(512, 4)).eval().bfloat16()
    block = Block().eval().bfloat16()
    rows, texts = torch.randn(2048, 32).bfloat16(), torch.randn(256, 16, 32).bfloat16()
    results = []
    for model, x in ((mlp, rows), (block, texts)):
        compiled = koila.compile(model, x, budget=BUDGET)
        with torch.no_grad():
            for size in (len(x), len(x) // 3):
                with app.within(BUDGET, strict=True):
                    results.append(compiled(x[:size]).float())
        results.append(koila.analyze(model, x).peak)
    return {"results": results}
