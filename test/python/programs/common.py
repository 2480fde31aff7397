"""What the programs share. Each takes `lazy`, which is koila.lazy or hands its
arguments back, and returns what the two must agree on."""

import torch
from torch import nn

BATCH = 96
torch.set_default_dtype(torch.float64)
programs = {}


def program(function):
    programs[function.__name__] = function
    return function


def samples(count=BATCH):
    """Samples that differ in more than noise, and labels."""
    generator = torch.Generator().manual_seed(3)
    inputs = torch.randn(count, 16, generator=generator, dtype=torch.float64)
    scale = torch.linspace(0.5, 2, count, dtype=torch.float64).view(-1, 1)
    return inputs * scale, torch.randint(5, (count,), generator=generator)


def images(count=BATCH):
    inputs, labels = samples(count)
    return inputs.view(count, 1, 4, 4).repeat(1, 3, 3, 3), labels


def make_mlp():
    torch.manual_seed(0)
    layers = [nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 64), nn.Tanh(), nn.Linear(64, 5)]
    return nn.Sequential(*layers).double()


def make_cnn():
    torch.manual_seed(0)
    first = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2)]
    second = [nn.Conv2d(8, 16, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten()]
    return nn.Sequential(*first, *second, nn.Linear(16, 5)).double()


def gradients(model):
    return [None if p.grad is None else p.grad.clone() for p in model.parameters()]


def backward(loss, *models):
    """The loss and all gradients after a backward pass."""
    loss.backward()
    return [loss.item(), *(gradient for model in models for gradient in gradients(model))]


def weights(model):
    return [t.detach().clone() for t in (*model.parameters(), *model.buffers())]


def loop(model, optimizer, lazy, criterion, batches, steps=3):
    losses = []
    for x, y in batches * steps:
        x, y = lazy(x, y)
        optimizer.zero_grad()
        loss = criterion(model(x), y)
        loss.backward()
        optimizer.step()
        losses.append(loss.item())
    return losses + weights(model)
