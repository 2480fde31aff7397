"""Captions from feature vectors with an LSTMCell: teacher forcing to train, greedy to caption."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(5)
BOS, EOS, VOCAB, LENGTH = 0, 1, 30, 14

# The five features of an image say with which word a caption begins and how it goes on.
features = torch.randn(288, 5) * torch.linspace(0.5, 2.0, 288).unsqueeze(1)
first = (features[:, :1] > 0) * 10 + (features[:, 1:2] > 0) * 5
captions = 2 + (first + (1 + (features[:, 2:3] > 0).long()) * torch.arange(LENGTH)) % (VOCAB - 2)
captions = torch.cat([torch.full((288, 1), BOS), captions, torch.full((288, 1), EOS)], dim=1)


class Captioner(nn.Module):
    def __init__(self, embed=32, hidden=64):
        super().__init__()
        self.embed = nn.Embedding(VOCAB, embed)
        self.init_h, self.init_c = nn.Linear(5, hidden), nn.Linear(5, hidden)
        self.cell = nn.LSTMCell(embed, hidden)
        self.drop = nn.Dropout(0.2)
        self.fc = nn.Linear(hidden, VOCAB)

    def forward(self, features, captions):
        h, c = torch.tanh(self.init_h(features)), self.init_c(features)
        words = self.embed(captions)
        outputs = []
        for t in range(captions.shape[1] - 1):
            h, c = self.cell(words[:, t], (h, c))
            outputs.append(self.fc(self.drop(h)))
        return torch.stack(outputs, dim=1)

    def caption(self, features):
        h, c = torch.tanh(self.init_h(features)), self.init_c(features)
        word = torch.full((features.shape[0],), BOS, dtype=torch.long)
        words = []
        for _ in range(LENGTH):
            h, c = self.cell(self.embed(word), (h, c))
            word = self.fc(h).argmax(dim=1)
            words.append(word)
        return torch.stack(words, dim=1)


model = Captioner()
optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
results = {"log": []}
for i, index in enumerate(torch.randperm(192).split(64)):
    image, caption = koila.lazy(features[index], captions[index], batch=0)
    scores = model(image, caption)
    loss = F.cross_entropy(scores.flatten(0, 1), caption[:, 1:].flatten())
    accuracy = (scores.argmax(2) == caption[:, 1:]).float().mean()
    optimizer.zero_grad()
    loss.backward()
    nn.utils.clip_grad_value_(model.parameters(), 0.1)
    optimizer.step()
    results["log"].append({"step": i, "loss": loss.item(), "accuracy": accuracy.item()})
    print(f"[{i}] loss {loss:.4f} accuracy {accuracy:.3f}")
model.eval()
with torch.inference_mode():
    results["captions"] = model.caption(koila.lazy(features[192:], batch=0)).tolist()
results["weights"] = model.state_dict()
