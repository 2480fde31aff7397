"""A bidirectional LSTM tags padded sentences; the loss ignores padding, accuracy is per token."""

# koila: tiles
import torch
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.data import DataLoader

import koila

torch.manual_seed(11)
WORDS, TAGS, PAD, IGNORED = 60, 5, 0, -100
sentences = [torch.randint(1, WORDS, (4 + 5 * i % 21,)) for i in range(304)]
# A word's tag depends on the word and on the one before it.
samples = [(words, (words + words.roll(1)) % TAGS) for words in sentences]


def collate(samples):
    words, tags = zip(*samples, strict=True)
    words = pad_sequence(words, batch_first=True, padding_value=PAD)
    return words, pad_sequence(tags, batch_first=True, padding_value=IGNORED)


class Tagger(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.embedding = nn.Embedding(WORDS, width, padding_idx=PAD)
        self.lstm = nn.LSTM(width, width, 2, bidirectional=True, dropout=0.3, batch_first=True)
        self.tag = nn.Linear(2 * width, TAGS)

    def forward(self, words):
        output, _ = self.lstm(self.embedding(words))
        return self.tag(output)


def run_epoch(loader, optimizer=None):
    model.train(optimizer is not None)
    total_loss, right, count = 0.0, 0, 0
    with torch.set_grad_enabled(optimizer is not None):
        for words, tags in loader:
            words, tags = koila.lazy(words, tags, batch=0)
            scores = model(words)
            loss = criterion(scores.view(-1, TAGS), tags.view(-1))
            if optimizer is not None:
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
            known = tags != IGNORED
            right += ((scores.argmax(-1) == tags) & known).sum().item()
            count += known.sum().item()
            total_loss += loss.item() * len(words)
    return {"loss": total_loss / len(loader.dataset), "accuracy": right / count, "tokens": count}


model = Tagger()
criterion = nn.CrossEntropyLoss(ignore_index=IGNORED)
optimizer = torch.optim.SGD(model.parameters(), lr=1.0)
train_loader = DataLoader(samples[:224], batch_size=96, collate_fn=collate)
results = {"train": run_epoch(train_loader, optimizer)}
results["test"] = run_epoch(DataLoader(samples[224:], batch_size=80, collate_fn=collate))
print("train {loss:.4f} {accuracy:.3f}".format(**results["train"]))
results["weights"] = model.state_dict()
