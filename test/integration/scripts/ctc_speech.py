"""CTC on sequences of features that were padded, with lengths, and greedy decoding."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(13)
BLANK, LETTERS, FEATURES, FRAMES = 0, 8, 10, 36


def speak(i):
    """Frames of a word: each letter sounds for some frames, louder and louder from word to word."""
    letters = torch.randint(1, LETTERS, (3 + i % 4,))
    frames = sounds[letters].repeat_interleave(4 + i % 3, dim=0)
    return frames * (0.5 + i / 150) + 0.1 * torch.randn(len(frames), FEATURES), letters


def collate(words):
    sides = list(zip(*words, strict=True))
    frames, letters = (nn.utils.rnn.pad_sequence(side, batch_first=True) for side in sides)
    return frames, letters, *(torch.tensor([len(item) for item in side]) for side in sides)


class Recognizer(nn.Module):
    def __init__(self, width=32):
        super().__init__()
        self.conv = nn.Conv1d(FEATURES, width, 5, padding=2)
        self.gru = nn.GRU(width, width, batch_first=True, bidirectional=True)
        self.out = nn.Linear(2 * width, LETTERS)

    def forward(self, frames):
        x = torch.relu(self.conv(frames.transpose(1, 2))).transpose(1, 2)
        x, _ = self.gru(x)
        return F.log_softmax(self.out(x), dim=-1)


sounds = torch.randn(LETTERS, FEATURES)
words = [speak(i) for i in range(256)]
model = Recognizer()
ctc = nn.CTCLoss(blank=BLANK, zero_infinity=True)
optimizer = torch.optim.SGD(model.parameters(), lr=0.2, momentum=0.9, nesterov=True)
results = {"losses": []}
for begin in range(0, 192, 64):
    batch = koila.lazy(collate(words[begin : begin + 64]), batch=0)
    frames, letters, lengths, target_lengths = batch
    log_probs = model(frames).transpose(0, 1)
    loss = ctc(log_probs, letters, lengths, target_lengths)
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_norm_(model.parameters(), 5.0)
    optimizer.step()
    results["losses"].append(loss.item())

model.eval()
results["decoded"] = []
with torch.no_grad():
    frames, letters, lengths, target_lengths = koila.lazy(collate(words[192:]), batch=0)
    log_probs = model(frames)
    for row, length in zip(log_probs.argmax(dim=-1), lengths, strict=True):
        path = torch.unique_consecutive(row[:length])
        results["decoded"].append(path[path != BLANK].tolist())
    results["scores"] = log_probs.amax(dim=-1).mean(dim=1).tolist()
print("losses:", ", ".join(f"{loss:.3f}" for loss in results["losses"]))
results["weights"] = model.state_dict()
