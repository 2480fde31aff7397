"""Texts are sampled from a small GPT with temperature and top-k, as nanoGPT does."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(1337)
vocab_size, block_size, n_embd, batch_size = 27, 16, 32, 96
results = {"train_loss": [], "grad_norm": []}
# Characters follow each other in one of nine ways, one for every row of the corpus.
steps = torch.randint(2, 11, (428, 1)).expand(-1, 40).cumsum(1)
data = (steps + torch.randint(0, 2, (428, 40))) % vocab_size


class GPT(nn.Module):
    def __init__(self):
        super().__init__()
        self.wte = nn.Embedding(vocab_size, n_embd)
        self.wpe = nn.Embedding(block_size, n_embd)
        layer = nn.TransformerEncoderLayer(
            n_embd, 4, 4 * n_embd, activation="gelu", batch_first=True, norm_first=True
        )
        self.blocks = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
        self.head = nn.Linear(n_embd, vocab_size, bias=False)

    def forward(self, idx, targets=None):
        t = idx.shape[1]
        x = self.wte(idx) + self.wpe(torch.arange(t, device=idx.device))
        x = self.blocks(x, mask=torch.triu(torch.full((t, t), float("-inf")), diagonal=1))
        logits = self.head(x)
        if targets is None:
            return logits, None
        return logits, F.cross_entropy(logits.view(-1, logits.size(-1)), targets.view(-1))

    @torch.no_grad()
    def generate(self, idx, new_tokens, temperature=0.8, top_k=8):
        for _ in range(new_tokens):
            logits, _ = self(idx[:, -block_size:])
            logits = logits[:, -1, :] / temperature
            v, _ = torch.topk(logits, min(top_k, logits.size(-1)))
            logits[logits < v[:, [-1]]] = -float("inf")
            idx = torch.cat((idx, torch.multinomial(F.softmax(logits, dim=-1), num_samples=1)), 1)
        return idx


model = GPT()
optimizer = torch.optim.AdamW(model.parameters(), lr=3e-3, betas=(0.9, 0.95), eps=1e-5)
for it in range(3):
    rows, cols = torch.randint(300, (batch_size,)), torch.randint(40 - block_size, (batch_size,))
    chunk = data[rows[:, None], cols[:, None] + torch.arange(block_size + 1)]
    x, y = koila.lazy(chunk[:, :-1].contiguous(), chunk[:, 1:].contiguous(), batch=0)
    logits, loss = model(x, y)
    optimizer.zero_grad(set_to_none=True)
    loss.backward()
    results["grad_norm"].append(nn.utils.clip_grad_norm_(model.parameters(), 1.0).item())
    results["train_loss"].append(loss.item())
    optimizer.step()
    print(f"iter {it}: loss {loss.item():.4f}, perplexity {loss.exp().item():.2f}")
model.eval()
prompt = koila.lazy(data[300:, :block_size], batch=0)
results["sampled"] = model.generate(prompt, 6)[:, -6:].numpy()
results["weights"] = model.state_dict()
