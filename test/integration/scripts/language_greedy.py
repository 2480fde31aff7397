"""A causal transformer with dropout is trained on texts, then continues prompts token by token."""

# koila: tiles
import math

import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, TensorDataset

import koila

VOCAB, LENGTH, WIDTH = 32, 20, 32
results = {"losses": []}
torch.manual_seed(0)

# Every text goes through the alphabet from its own start in its own stride.
start, stride = torch.randint(VOCAB, (320, 1)), torch.randint(1, 6, (320, 1))
text = (start + stride * torch.arange(LENGTH + 1)) % VOCAB


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.token = nn.Embedding(VOCAB, WIDTH)
        self.position = nn.Embedding(LENGTH, WIDTH)
        self.layers = nn.ModuleList(
            nn.TransformerEncoderLayer(WIDTH, 4, 2 * WIDTH, batch_first=True) for _ in range(2)
        )
        self.head = nn.Linear(WIDTH, VOCAB)

    def forward(self, tokens):
        length = tokens.size(1)
        x = self.token(tokens) * math.sqrt(WIDTH) + self.position(torch.arange(length))
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        for layer in self.layers:
            x = layer(x, src_mask=mask, is_causal=True)
        return self.head(x)


model = Model()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, eps=1e-6)
for step, (batch,) in enumerate(DataLoader(TensorDataset(text[:192]), batch_size=64, shuffle=True)):
    batch = koila.lazy(batch, batch=0)
    logits = model(batch[:, :-1])
    loss = F.cross_entropy(logits.reshape(-1, VOCAB), batch[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    results["losses"].append(loss.item())
    print(f"step {step}: loss {loss.item():.4f}")

model.eval()
with torch.no_grad():
    tokens = koila.lazy(text[192:, :8], batch=0)
    for _ in range(8):
        tokens = torch.cat([tokens, model(tokens)[:, -1].argmax(-1, keepdim=True)], dim=1)
results["texts"] = tokens.tolist()
results["weights"] = model.state_dict()
