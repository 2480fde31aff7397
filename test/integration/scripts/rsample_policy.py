"""A squashed normal policy is trained by rsample through a world that can be differentiated."""

# koila: tiles
import math

import torch
import torch.nn.functional as F
from torch import nn
from torch.distributions import Normal

import koila

torch.manual_seed(41)
results, STEPS, TARGET_ENTROPY = {"actor": [], "alpha": []}, 6, -2.0
start = torch.randn(4, 512, 6) * torch.linspace(0.3, 1.5, 512).view(-1, 1)


class GaussianPolicy(nn.Module):
    def __init__(self, states=6, actions=2, hidden=64):
        super().__init__()
        self.first, self.second = nn.Linear(states, hidden), nn.Linear(hidden, hidden)
        self.mean, self.log_std = nn.Linear(hidden, actions), nn.Linear(hidden, actions)

    def forward(self, state):
        x = F.relu(self.second(F.relu(self.first(state))))
        return Normal(self.mean(x), self.log_std(x).clamp(-5, 2).exp())

    def sample(self, state):
        normal = self(state)
        raw = normal.rsample()
        action = torch.tanh(raw)
        correction = 2 * (math.log(2) - raw - F.softplus(-2 * raw))
        return action, (normal.log_prob(raw) - correction).sum(dim=-1)


def move(state, action):
    """Position, speed and goal in the plane; the cost is the distance and the force."""
    position, speed, goal = state.chunk(3, dim=1)
    speed = 0.9 * speed + 0.3 * action
    position = position + speed
    cost = (position - goal).pow(2).sum(1) + 0.1 * action.pow(2).sum(1)
    return torch.cat([position, speed, goal], dim=1), cost


policy = GaussianPolicy()
log_alpha = nn.Parameter(torch.tensor(-1.0))
actor_optimizer = torch.optim.SGD(policy.parameters(), lr=0.01, momentum=0.9)
alpha_optimizer = torch.optim.SGD([log_alpha], lr=0.05)
for episode in range(3):
    state = koila.lazy(start[episode], batch=0)
    costs, log_probs = [], []
    for _ in range(STEPS):
        action, log_prob = policy.sample(state)
        state, cost = move(state, action)
        costs.append(cost)
        log_probs.append(log_prob)
    cost, log_prob = torch.stack(costs, dim=1).mean(1), torch.stack(log_probs, dim=1).mean(1)
    actor_loss = (cost + log_alpha.exp().detach() * log_prob).mean()
    alpha_loss = -(log_alpha * (log_prob.detach() + TARGET_ENTROPY)).mean()
    for optimizer, loss in ((actor_optimizer, actor_loss), (alpha_optimizer, alpha_loss)):
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    results["actor"].append(actor_loss.item())
    results["alpha"].append(log_alpha.exp().item())
    print(f"actor {actor_loss:.4f} alpha {log_alpha.exp():.4f} entropy {-log_prob.mean():.4f}")

with torch.no_grad():
    state, total = koila.lazy(start[3], batch=0), torch.zeros(512)
    for _ in range(STEPS):
        state, cost = move(state, torch.tanh(policy(state).mean))
        total += cost
    results["cost"], results["spread"] = total.numpy(), policy(state).stddev.mean(0).tolist()
results["weights"] = {**policy.state_dict(), "log_alpha": log_alpha.detach()}
