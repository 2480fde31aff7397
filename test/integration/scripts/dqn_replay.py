"""DQN on a grid world: replay buffer, target network, gather, smooth_l1, soft updates."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F

import koila

torch.manual_seed(29)
SIZE, GAMMA, TAU = 6, 0.9, 0.05
MOVES = torch.tensor([[0, 1], [0, -1], [1, 0], [-1, 0]])


def render(*points):
    planes, rows = torch.zeros(len(points[0]), 2, SIZE, SIZE), torch.arange(len(points[0]))
    for plane, point in enumerate(points):
        planes[rows, plane, point[:, 0], point[:, 1]] = 1.0 + plane
    return planes


class ReplayBuffer:
    def __init__(self, capacity):
        states, numbers = torch.zeros(2, capacity, 2, SIZE, SIZE), torch.zeros(2, capacity)
        self.columns, self.size = [*states, torch.zeros(capacity, dtype=torch.long), *numbers], 0

    def push(self, *batch):
        for column, values in zip(self.columns, batch, strict=True):
            column[self.size : self.size + len(values)] = values
        self.size += len(batch[0])

    def sample(self, count):
        index = torch.randint(self.size, (count,))
        return [column[index] for column in self.columns]


def make_network():
    return nn.Sequential(
        nn.Conv2d(2, 16, 3, padding=1),
        nn.ReLU(),
        nn.Conv2d(16, 16, 3, padding=1),
        nn.ReLU(),
        nn.MaxPool2d(2),
        nn.Flatten(),
        nn.Linear(144, 32),
        nn.Tanh(),
        nn.Linear(32, len(MOVES)),
    )


online, target = make_network(), make_network()
target.load_state_dict(online.state_dict())
optimizer = torch.optim.SGD(online.parameters(), lr=0.1, momentum=0.9)
buffer, results = ReplayBuffer(1000), {"loss": [], "td_error": [], "reward": []}
position, goal = torch.randint(SIZE, (256, 2)), torch.randint(SIZE, (256, 2))
for step in range(3):
    state = render(position, goal)
    with torch.no_grad():
        greedy = online(koila.lazy(state, batch=0)).argmax(dim=1)
    action = torch.where(torch.rand(256) < 0.5, torch.randint(4, (256,)), greedy)
    position = (position + MOVES[action]).clamp(0, SIZE - 1)
    done = (position == goal).all(dim=1).float()
    reward = done - 0.1 * (position - goal).abs().sum(dim=1)
    buffer.push(state, render(position, goal), action, reward, done)
    results["reward"].append(reward.mean().item())

    s, s2, a, r, d = koila.lazy(*buffer.sample(256), batch=0)
    q = online(s).gather(1, a.unsqueeze(1)).squeeze(1)
    with torch.no_grad():
        wanted = r + GAMMA * (1 - d) * target(s2).max(dim=1).values
    loss = F.smooth_l1_loss(q, wanted)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    for p, t in zip(online.parameters(), target.parameters(), strict=True):
        t.data.copy_(TAU * p.data + (1 - TAU) * t.data)
    results["loss"].append(loss.item())
    results["td_error"].append((wanted - q).abs().mean().item())
    print(f"step {step}: reward {results['reward'][-1]:.3f}, loss {results['loss'][-1]:.4f}")

with torch.inference_mode():
    values = online(koila.lazy(render(position, goal), batch=0))
    results["actions"], results["values"] = values.argmax(1).tolist(), values.amax(1).numpy()
results["weights"], results["target"] = online.state_dict(), target.state_dict()
