"""Actor and critic with a shared body: normalised advantages, value loss and entropy."""

# koila: tiles
import torch
import torch.nn as nn
import torch.nn.functional as F
from torch.distributions import Categorical

import koila

torch.manual_seed(31)
STEPS, GAMMA = 8, 0.97


class Pendulums:
    """Many carts with poles, every one with a length of its own."""

    length = torch.linspace(0.5, 1.5, 512)

    def reset(self):
        return 0.3 * torch.randn(len(self.length), 2)

    def step(self, state, action):
        angle, speed = state.unbind(dim=1)
        speed = speed + 0.98 / self.length * torch.sin(angle) + 0.2 * (action.float() - 1)
        angle = (angle + 0.1 * speed).clamp(-1.5, 1.5)
        return torch.stack([angle, speed], dim=1), torch.cos(angle) - 0.01 * speed**2


class ActorCritic(nn.Module):
    def __init__(self, hidden=64):
        super().__init__()
        self.first, self.second = nn.Linear(2, hidden), nn.Linear(hidden, hidden)
        self.actor, self.critic = nn.Linear(hidden, 3), nn.Linear(hidden, 1)

    def forward(self, state):
        state = torch.tanh(self.second(torch.tanh(self.first(state))))
        return Categorical(logits=self.actor(state)), self.critic(state).squeeze(-1)


model, env = ActorCritic(), Pendulums()
optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
results = {"updates": []}
for update in range(3):
    state = koila.lazy(env.reset(), batch=0)
    log_probs, values, rewards, entropies = ([] for _ in range(4))
    for _ in range(STEPS):
        policy, value = model(state)
        action = policy.sample()
        state, reward = env.step(state, action)
        log_probs.append(policy.log_prob(action))
        entropies.append(policy.entropy())
        values.append(value)
        rewards.append(reward)
    with torch.no_grad():
        returns = [model(state)[1]]
        for reward in reversed(rewards):
            returns.insert(0, reward + GAMMA * returns[0])
        returns = torch.stack(returns[:-1])
        advantage = returns - torch.stack(values)
        advantage = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    policy_loss = -(torch.stack(log_probs) * advantage).mean()
    value_loss = F.mse_loss(torch.stack(values), returns)
    entropy = torch.stack(entropies).mean()
    optimizer.zero_grad()
    (policy_loss + 0.5 * value_loss - 0.01 * entropy).backward()
    norm = nn.utils.clip_grad_norm_(model.parameters(), 0.5)
    optimizer.step()
    log = {"policy": policy_loss, "value": value_loss, "entropy": entropy, "norm": norm}
    log["reward"] = torch.stack(rewards).sum(dim=0).mean()
    results["updates"].append({name: value.item() for name, value in log.items()})
    print(update, results["updates"][-1])

with torch.no_grad():
    policy, value = model(koila.lazy(env.reset(), batch=0))
results["probabilities"], results["value"] = policy.probs.numpy(), value.numpy()
results["weights"] = model.state_dict()
