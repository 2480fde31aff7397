"""REINFORCE in a toy world: batches of episodes, Categorical, log_prob, discounted returns."""

# koila: tiles
import torch
from torch import nn
from torch.distributions import Categorical

import koila

torch.manual_seed(23)
results = {"returns": [], "losses": []}
MOVES = torch.tensor([[0.0, 0.0], [0.3, 0.0], [-0.3, 0.0], [0.0, 0.3], [0.0, -0.3]])


class Field:
    """Points on a field that are to reach their goals; the reward is how much nearer they came."""

    def __init__(self, count):
        self.scale = torch.linspace(0.5, 2.0, count).unsqueeze(1)

    def reset(self):
        return torch.randn(len(self.scale), 4) * self.scale

    def step(self, state, action):
        position, goal = state[:, :2], state[:, 2:]
        before = (goal - position).norm(dim=1)
        position = position + MOVES[action]
        after = (goal - position).norm(dim=1)
        reward = before - after + 0.5 * (after < 0.2).float()
        return torch.cat([position, goal], dim=1), reward


policy = nn.Sequential(
    nn.Linear(4, 64), nn.Tanh(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, len(MOVES))
)
optimizer = torch.optim.Adam(policy.parameters(), lr=3e-3, eps=1e-5)
field, baseline = Field(512), 0.0
for episode in range(3):
    state = koila.lazy(field.reset(), batch=0)
    log_probs, rewards = [], []
    for _ in range(8):
        distribution = Categorical(logits=policy(state))
        action = distribution.sample()
        log_probs.append(distribution.log_prob(action))
        state, reward = field.step(state, action)
        rewards.append(reward)
    returns, total = [], 0.0
    for reward in reversed(rewards):
        total = reward + 0.95 * total
        returns.insert(0, total)
    returns = torch.stack(returns)
    loss = -(torch.stack(log_probs) * (returns - baseline)).sum(dim=0).mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    baseline = 0.9 * baseline + 0.1 * returns[0].mean().item()
    results["returns"].append(returns[0].mean().item())
    results["losses"].append(loss.item())
    print(f"episode {episode}: return {returns[0].mean():.4f}, loss {loss:.4f}")

with torch.no_grad():
    state = koila.lazy(field.reset(), batch=0)
    for _ in range(8):
        state, reward = field.step(state, policy(state).argmax(dim=1))
    results["distance"] = (state[:, 2:] - state[:, :2]).norm(dim=1).numpy()
results["weights"] = policy.state_dict()
