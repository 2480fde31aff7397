"""Convolutions tag padded sentences in dict batches; the loss is a mean over the mask."""

# koila: tiles
import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.data import DataLoader

import koila

torch.manual_seed(2)
WORDS, TAGS = 50, 6
results = {}


def make_sentence(index):
    words = torch.randint(1, WORDS, (4 + 7 * index % 19,))
    return {"words": words, "tags": (words + words.flip(0)) % TAGS, "weight": 0.5 + index % 3}


def collate(sentences):
    longest = max(len(sentence["words"]) for sentence in sentences)
    words = torch.zeros(len(sentences), longest, dtype=torch.long)
    tags, mask = torch.zeros_like(words), torch.zeros(len(sentences), longest)
    for row, sentence in enumerate(sentences):
        length = len(sentence["words"])
        words[row, :length], tags[row, :length] = sentence["words"], sentence["tags"]
        mask[row, :length] = sentence["weight"]
    return {"words": words, "tags": tags, "mask": mask}


class ConvTagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=0)
        self.convs = nn.ModuleList(nn.Conv1d(width, width, 3, padding=1) for _ in range(3))
        self.norms = nn.ModuleList(nn.LayerNorm(width) for _ in range(3))
        self.tag = nn.Linear(width, TAGS)

    def forward(self, words):
        x = self.embedding(words)
        for conv, norm in zip(self.convs, self.norms, strict=True):
            x = x + F.gelu(conv(norm(x).transpose(1, 2)).transpose(1, 2))
        return self.tag(x)


def masked_loss(logits, batch):
    loss = F.cross_entropy(logits.transpose(1, 2), batch["tags"], reduction="none")
    return (loss * batch["mask"]).sum() / batch["mask"].sum()


sentences = [make_sentence(index) for index in range(336)]
model = ConvTagger()
optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
running = torch.zeros(())
for batch in DataLoader(sentences[:256], batch_size=96, shuffle=True, collate_fn=collate):
    batch = koila.lazy(batch, batch=0)
    optimizer.zero_grad()
    loss = masked_loss(model(batch["words"]), batch)
    loss.backward()
    optimizer.step()
    running += loss.detach()
results["train_loss"] = running.item() / 3
model.eval()
with torch.no_grad():
    batch = koila.lazy(collate(sentences[256:]), batch=0)
    logits = model(batch["words"])
    results["test_loss"] = float(masked_loss(logits, batch))
    real = batch["mask"] > 0
    right = ((logits.argmax(-1) == batch["tags"]) & real).sum(dim=1)
    results["right"] = right.sum().item() / real.sum().item()
    results["worst"] = (right / real.sum(dim=1)).argsort()[:5].tolist()
print({name: round(value, 4) for name, value in results.items() if name != "worst"})
results["weights"] = model.state_dict()
