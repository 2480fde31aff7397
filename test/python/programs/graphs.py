"""Writes, hooks, and what looks at autograd's graph."""

import torch
import torch.nn.functional as F
from torch import nn

import koila
from programs.common import BATCH, backward, gradients, make_mlp, program, samples


@program
def inplace_relu(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.ReLU(inplace=True), nn.Linear(64, 5))
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def inplace_add(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[0](x)
    h += 1
    h[:, 0] = 0
    h.mul_(2)
    loss = F.cross_entropy(model[2:](h.relu_()), y)
    return backward(loss, model)


@program
def inplace_input_noise(lazy):
    model = make_mlp()
    inputs, labels = samples()
    x, y = lazy(inputs, labels)
    x = x.clone()
    torch.manual_seed(9)
    x += torch.randn_like(x) * 0.1
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [loss.item(), inputs.sum().item(), *gradients(model)]


@program
def write_into_user_input(lazy):
    model = make_mlp()
    inputs, labels = samples()
    x, y = lazy(inputs, labels)
    x.mul_(2)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [loss.item(), inputs.clone(), *gradients(model)]


@program
def user_changes_input_after(lazy):
    model = make_mlp()
    inputs, labels = samples()
    x, y = lazy(inputs, labels)
    o = model(x)
    try:
        loss = F.cross_entropy(o, y)
        v = loss.item()
        inputs.zero_()
        return [v]
    except koila.KoilaError:
        return ["raised"]


@program
def forward_hook(lazy):
    model = make_mlp()
    model[0].register_forward_hook(lambda mod, i, o: o * 2)
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def stat_hook(lazy):
    model = make_mlp()
    seen = []
    model[0].register_forward_hook(lambda mod, i, o: seen.append(o.detach().mean()))
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [loss.item(), float(seen[0]), *gradients(model)]


@program
def tensor_hook_param(lazy):
    model = make_mlp()
    model[0].weight.register_hook(lambda g: g * 3)
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def post_acc_hook(lazy):
    model = make_mlp()
    n = []
    for p in model.parameters():
        p.register_post_accumulate_grad_hook(lambda p: n.append(p.grad.norm().item()))
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return sorted(n)


@program
def full_backward_hook(lazy):
    model = make_mlp()
    n = []
    model[2].register_full_backward_hook(lambda mod, gi, go: n.append(go[0].norm().item()))
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return n + gradients(model)


@program
def act_hook(lazy):
    model = make_mlp()
    n = []
    x, y = lazy(*samples())
    h = model[0](x)
    h.register_hook(lambda g: n.append(g.norm().item()))
    loss = F.cross_entropy(model[1:](h), y)
    loss.backward()
    return n + gradients(model)


@program
def retain_grad(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    h = model[0](x)
    h.retain_grad()
    loss = F.cross_entropy(model[1:](h), y)
    loss.backward()
    return [h.grad.clone(), *gradients(model)]


@program
def ckpt(lazy):
    from torch.utils.checkpoint import checkpoint

    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(checkpoint(model, x, use_reentrant=False), y)
    return backward(loss, model)


@program
def grad_api(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    g = torch.autograd.grad(loss, list(model.parameters()))
    return [a.clone() for a in g]


@program
def grad_penalty(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(model(x), y)
    g = torch.autograd.grad(loss, list(model.parameters()), create_graph=True)
    (loss + sum(a.square().sum() for a in g)).backward()
    return gradients(model)


@program
def input_grad(lazy):
    model = make_mlp()
    inputs, labels = samples()
    inputs.requires_grad_()
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [inputs.grad.clone(), *gradients(model)]


@program
def fgsm(lazy):
    model = make_mlp()
    inputs, labels = samples()
    x, y = lazy(inputs, labels)
    x = x.detach().requires_grad_()
    loss = F.cross_entropy(model(x), y)
    loss.backward()
    return [x.grad.clone()]


@program
def backward_vector(lazy):
    model = make_mlp()
    x, _y = lazy(*samples())
    o = model(x)
    o.backward(torch.ones(BATCH, 5))
    return gradients(model)


@program
def custom_function(lazy):
    class Sq(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            ctx.save_for_backward(x)
            return x * x

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * 2 * x

    model = make_mlp()
    x, y = lazy(*samples())
    loss = F.cross_entropy(Sq.apply(model(x)), y)
    return backward(loss, model)


@program
def functional_call(lazy):
    model = make_mlp()
    ps = {k: v.detach().clone().requires_grad_() for k, v in model.named_parameters()}
    x, y = lazy(*samples())
    loss = F.cross_entropy(torch.func.functional_call(model, ps, (x,)), y)
    loss.backward()
    return [loss.item()] + [p.grad.clone() for p in ps.values()]
