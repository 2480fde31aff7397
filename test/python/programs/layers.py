"""Layers: recurrent, attention, normalisation, reparametrised."""

import torch
import torch.nn.functional as F
from torch import nn

from programs.common import BATCH, backward, images, loop, make_cnn, make_mlp, program, samples


@program
def shared_module(lazy):
    torch.manual_seed(0)
    a = nn.Linear(16, 16)
    h = nn.Linear(16, 5)
    x, y = lazy(*samples())
    loss = F.cross_entropy(h(a(a(x).tanh()).tanh()), y)
    return backward(loss, a, h)


@program
def tied(lazy):
    torch.manual_seed(0)
    e = nn.Embedding(20, 16)
    dec = nn.Linear(16, 20, bias=False)
    dec.weight = e.weight
    inputs = torch.randint(20, (BATCH, 6))
    (x,) = [lazy(inputs)]
    loss = F.cross_entropy(dec(e(x).cumsum(1).tanh()).flatten(0, 1), x.flatten())
    return backward(loss, e)


@program
def lstm(lazy):
    torch.manual_seed(0)
    model = nn.LSTM(16, 12, batch_first=True)
    h = nn.Linear(12, 5)
    inputs, labels = samples()
    inputs = inputs.unsqueeze(1).repeat(1, 4, 1)
    x, y = lazy(inputs, labels)
    o, _ = model(x)
    loss = F.cross_entropy(h(o[:, -1]), y)
    return backward(loss, model, h)


@program
def gru_seq_first(lazy):
    torch.manual_seed(0)
    model = nn.GRU(16, 12)
    inputs, _labels = samples()
    inputs = inputs.unsqueeze(0).repeat(4, 1, 1)
    x = lazy(inputs, dim=1)
    o, h = model(x)
    loss = o.square().mean() + h.abs().mean()
    return backward(loss, model)


@program
def transformer(lazy):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 2
    )
    inputs, labels = samples()
    inputs = inputs.unsqueeze(1).repeat(1, 5, 1) + torch.arange(5.0).view(1, 5, 1)
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(model(x).mean(1)[:, :5], y)
    return backward(loss, model)


@program
def transformer_padmask(lazy):
    torch.manual_seed(0)
    model = nn.TransformerEncoder(
        nn.TransformerEncoderLayer(16, 4, 32, dropout=0.0, batch_first=True), 1
    )
    inputs, labels = samples()
    inputs = inputs.unsqueeze(1).repeat(1, 5, 1) + torch.arange(5.0).view(1, 5, 1)
    P = torch.arange(5).view(1, 5) >= (1 + labels.view(-1, 1))
    x, y, p = lazy(inputs, labels, P)
    loss = F.cross_entropy(model(x, src_key_padding_mask=p)[:, 0, :5], y)
    return backward(loss, model)


@program
def mha_weights(lazy):
    torch.manual_seed(0)
    model = nn.MultiheadAttention(16, 4, batch_first=True)
    inputs, labels = samples()
    inputs = inputs.unsqueeze(1).repeat(1, 5, 1) + torch.arange(5.0).view(1, 5, 1)
    x, _y = lazy(inputs, labels)
    o, a = model(x, x, x)
    loss = o.square().mean() + a.square().sum()
    return backward(loss, model)


@program
def dropout_seed(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.Dropout(0.5), nn.Linear(64, 5), nn.Dropout(0.1))
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    torch.manual_seed(4)
    return [*loop(model, optimizer, lazy, F.cross_entropy, [samples()]), torch.rand(1)]


@program
def batchnorm_eval_part(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(16, 64), nn.BatchNorm1d(64), nn.ReLU(), nn.Linear(64, 5))
    model[1](model[0](samples()[0]))
    model[1].eval()
    return loop(model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [samples()])


@program
def groupnorm_instancenorm(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 8, 3),
        nn.GroupNorm(2, 8),
        nn.ReLU(),
        nn.Conv2d(8, 8, 3),
        nn.InstanceNorm2d(8, affine=True),
        nn.Flatten(),
        nn.Linear(512, 5),
    )
    return loop(model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [images()])


@program
def spectral_weight_norm(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(16, 64)),
        nn.ReLU(),
        nn.utils.parametrizations.spectral_norm(nn.Linear(64, 5)),
    )
    return loop(model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [samples()])


@program
def orthogonal(lazy):
    torch.manual_seed(0)
    model = nn.Sequential(nn.utils.parametrizations.orthogonal(nn.Linear(16, 16)), nn.Linear(16, 5))
    return loop(
        model, torch.optim.SGD(model.parameters(), 0.1), lazy, F.cross_entropy, [samples()], steps=2
    )


@program
def deep(lazy):
    torch.manual_seed(0)
    layers = nn.ModuleList(nn.Linear(16, 16) for _ in range(60))
    x, y = lazy(*samples())
    h = x
    for layer in layers:
        h = h + 0.1 * layer(h).tanh()
    loss = F.cross_entropy(h[:, :5], y)
    return backward(loss, layers)


@program
def channels_last(lazy):
    model = make_cnn().to(memory_format=torch.channels_last)
    inputs, labels = images()
    x, y = lazy(inputs.to(memory_format=torch.channels_last), labels)
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def noncontig(lazy):
    model = make_mlp()
    inputs, labels = samples()
    inputs = inputs.t().contiguous().t()
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(model(x), y)
    return backward(loss, model)


@program
def embedding_bag(lazy):
    torch.manual_seed(0)
    e = nn.EmbeddingBag(20, 16, mode="mean")
    h = nn.Linear(16, 5)
    inputs = torch.randint(20, (BATCH, 6))
    _, labels = samples()
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(h(e(x)), y)
    return backward(loss, e, h)


@program
def einsum_(lazy):
    model = make_mlp()
    x, y = lazy(*samples())
    q = torch.einsum("bi,bj->bij", x, x).flatten(1)[:, :16]
    loss = F.cross_entropy(model(q), y)
    return backward(loss, model)


@program
def scan_loop(lazy):
    torch.manual_seed(0)
    c = nn.GRUCell(16, 16)
    h0 = nn.Linear(16, 5)
    x, y = lazy(*samples())
    h = torch.zeros(x.shape[0], 16)
    for _ in range(4):
        h = c(x, h)
    loss = F.cross_entropy(h0(h), y)
    return backward(loss, c, h0)


@program
def interpolate(lazy):
    model = make_cnn()
    inputs, labels = images()
    x, y = lazy(inputs, labels)
    loss = F.cross_entropy(model(F.interpolate(x, scale_factor=2, mode="bilinear")), y)
    return backward(loss, model)
