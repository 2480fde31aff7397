"""A GRU reads long texts in chunks; its hidden state goes on from batch to batch, detached."""

# koila: tiles
import math

import torch
from torch import nn

import koila

torch.manual_seed(3)
results = {"losses": [], "norms": []}
CHARS, STREAMS, CHUNK = 24, 128, 16
pace = torch.randint(1, 5, (STREAMS, 1))
stream = (torch.randint(CHARS, (STREAMS, 1)) + pace * torch.arange(4 * CHUNK + 1)) % CHARS


class CharGRU(nn.Module):
    def __init__(self, hidden=32):
        super().__init__()
        self.embed = nn.Embedding(CHARS, 16)
        self.gru = nn.GRU(16, hidden, num_layers=2, batch_first=True)
        self.decode = nn.Linear(hidden, CHARS)

    def forward(self, chars, hidden=None):
        output, hidden = self.gru(self.embed(chars), hidden)
        return self.decode(output), hidden


model = CharGRU()
criterion = nn.CrossEntropyLoss()
optimizer = torch.optim.SGD(model.parameters(), lr=2.0, momentum=0.9)
hidden = None
for begin in range(0, 3 * CHUNK, CHUNK):
    source = stream[:, begin : begin + CHUNK]
    target = stream[:, begin + 1 : begin + CHUNK + 1]
    source, target = koila.lazy(source, target, batch=0)
    logits, hidden = model(source, hidden)
    hidden = hidden.detach()
    loss = criterion(logits.transpose(1, 2), target)
    optimizer.zero_grad()
    loss.backward()
    results["norms"].append(float(nn.utils.clip_grad_norm_(model.parameters(), 0.5)))
    optimizer.step()
    results["losses"].append(loss.item())
    print(f"chars {begin + CHUNK}, loss {loss.item():.3f}")
results["hidden"] = hidden.norm(dim=-1).numpy()

model.eval()
with torch.inference_mode():
    source, target = koila.lazy(stream[:, 48:64], stream[:, 49:65], batch=0)
    logits, hidden = model(source)
    results["perplexity"] = math.exp(criterion(logits.transpose(1, 2), target).item())
    last, written = source[:, -1:], []
    for _ in range(5):
        logits, hidden = model(last, hidden)
        last = logits.argmax(dim=-1)
        written.append(last)
    results["written"] = torch.cat(written, dim=1).tolist()
print("perplexity {:.3f}".format(results["perplexity"]))
results["weights"] = model.state_dict()
