"""Translation with nn.Transformer: padding and causal masks, teacher forcing, greedy decoding."""

# koila: tiles
import torch
import torch.nn as nn
from torch.nn.utils.rnn import pad_sequence

import koila

torch.manual_seed(7)
PAD, BOS, EOS, WORDS, WIDTH = 0, 1, 2, 28, 32


def make_pair(i):
    """The translation is the sentence backwards, in other words."""
    source = torch.randint(3, WORDS, (3 + i % 10,))
    target = 3 + (source.flip(0) - 3 + 7) % (WORDS - 3)
    return source, torch.cat([torch.tensor([BOS]), target, torch.tensor([EOS])])


def make_batch(pairs):
    return [pad_sequence(side, batch_first=True) for side in zip(*pairs, strict=True)]


class Translator(nn.Module):
    def __init__(self):
        super().__init__()
        self.source, self.target = nn.Embedding(WORDS, WIDTH), nn.Embedding(WORDS, WIDTH)
        self.place = nn.Parameter(0.1 * torch.randn(20, WIDTH))
        self.transformer = nn.Transformer(WIDTH, 4, 1, 1, 64, dropout=0.1, batch_first=True)
        self.out = nn.Linear(WIDTH, WORDS)

    def forward(self, source, target):
        padding = source == PAD
        causal = torch.ones(target.size(1), target.size(1), dtype=torch.bool).triu(1)
        output = self.transformer(
            self.source(source) + self.place[: source.size(1)],
            self.target(target) + self.place[: target.size(1)],
            tgt_mask=causal,
            src_key_padding_mask=padding,
            memory_key_padding_mask=padding,
            tgt_key_padding_mask=target == PAD,
        )
        return self.out(output)


pairs, model = [make_pair(i) for i in range(256)], Translator()
criterion = nn.CrossEntropyLoss(ignore_index=PAD, label_smoothing=0.1)
optimizer = torch.optim.Adam(model.parameters(), lr=5e-3, betas=(0.9, 0.98), eps=1e-5)
total_loss = 0
for begin in range(0, 192, 64):
    source, target = koila.lazy(*make_batch(pairs[begin : begin + 64]), batch=0)
    logits = model(source, target[:, :-1])
    loss = criterion(logits.reshape(-1, WORDS), target[:, 1:].reshape(-1))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    total_loss += loss.item()
results = {"train_loss": total_loss / 3}

model.eval()
with torch.no_grad():
    source, target = koila.lazy(*make_batch(pairs[192:]), batch=0)
    output = torch.full((source.size(0), 1), BOS)
    for _ in range(target.size(1) - 1):
        output = torch.cat([output, model(source, output)[:, -1].argmax(-1, keepdim=True)], dim=1)
        if (output == EOS).any(dim=1).all():
            break
    results["translations"] = output.tolist()
    right = (output == target[:, : output.size(1)]) & (target[:, : output.size(1)] != PAD)
    results["right"] = right.sum().item()
print(f"loss {results['train_loss']:.4f}, {results['right']} words right")
results["weights"] = model.state_dict()
