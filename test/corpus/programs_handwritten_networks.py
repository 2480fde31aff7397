"""Networks written for the corpus: recurrent, attention, convolutions, graphs,
points, recommendation, generators."""

import torch
from torch import nn
from torch.nn import functional as F

from registry import network, program

# ---------------------------------------------------------------------------
# Recurrent


@program
def hand_lstm():
    def forward(self, x):
        y, (h, c) = self.lstm(x)
        return self.head(y[:, -1]), h, c

    return network(forward, lstm=nn.LSTM(16, 24, batch_first=True), head=nn.Linear(24, 5)), [
        "float32[B,10,16]"
    ]


@program
def hand_lstm_stacked():
    """Time first: the batch is the second extent, also of given states."""

    def forward(self, x, h, c):
        y, (h, c) = self.lstm(x, (h, c))
        return self.head(y), h, c

    state = "float32[2,B,24]"
    return network(
        forward, lstm=nn.LSTM(16, 24, num_layers=2, dropout=0.1), head=nn.Linear(24, 5)
    ), ["float32[10,B,16]", state, state]


@program
def hand_lstm_bidirectional():
    def forward(self, ids):
        y, _ = self.lstm(self.embedding(ids))
        return self.head(y.amax(1))

    return network(
        forward,
        embedding=nn.Embedding(50, 16, padding_idx=0),
        lstm=nn.LSTM(16, 12, batch_first=True, bidirectional=True),
        head=nn.Linear(24, 5),
    ), ["int64[B,10]{0:50}"]


@program
def hand_gru():
    def forward(self, x):
        y, h = self.gru(x)
        return self.head(y), h.transpose(0, 1)

    return network(forward, gru=nn.GRU(16, 24, num_layers=2), head=nn.Linear(24, 5)), [
        "float32[10,B,16]"
    ]


@program
def hand_rnn_cells():
    """Steps written out, with cells and a state made from the input."""

    def forward(self, x):
        h = x.new_zeros(x.size(0), 24)
        c = torch.zeros_like(h)
        outputs = []
        for step in x.unbind(1):
            h, c = self.cell(step, (h, c))
            h = self.second(h, h * 0.5)
            outputs.append(self.rnn(h))
        return torch.stack(outputs, dim=1)

    return network(
        forward, cell=nn.LSTMCell(16, 24), second=nn.GRUCell(24, 24), rnn=nn.RNNCell(24, 8)
    ), ["float32[B,4,16]"]


@program
def hand_seq2seq_attention():
    """An encoder, and one decoder step at a time with additive attention."""

    def forward(self, source, target):
        keys, h = self.encoder(self.embedding(source))
        h, logits = h[-1], []
        for t in range(3):
            query = self.query(h).unsqueeze(1)
            scores = self.score(torch.tanh(query + self.key(keys))).squeeze(-1)
            weights = F.softmax(scores, dim=-1)
            context = torch.bmm(weights.unsqueeze(1), keys).squeeze(1)
            step = torch.cat([self.embedding(target[:, t]), context], dim=-1)
            h = self.decoder(step, h)
            logits.append(self.head(h))
        return torch.stack(logits, 1).log_softmax(-1)

    return network(
        forward,
        embedding=nn.Embedding(50, 16),
        encoder=nn.GRU(16, 24, batch_first=True),
        query=nn.Linear(24, 12),
        key=nn.Linear(24, 12),
        score=nn.Linear(12, 1),
        decoder=nn.GRUCell(40, 24),
        head=nn.Linear(24, 50),
    ), ["int64[B,7]{0:50}", "int64[B,3]{0:50}"]


# ---------------------------------------------------------------------------
# Attention


@program
def hand_transformer_encoder():
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=True)
    encoder = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False)
    return encoder, ["float32[B,9,32]"]


@program
def hand_transformer_decoder():
    """Sequence first, with a causal mask."""

    def forward(self, target, memory):
        length = target.size(0)
        mask = nn.Transformer.generate_square_subsequent_mask(length)
        return self.decoder(target, memory, tgt_mask=mask)

    layer = nn.TransformerDecoderLayer(32, 4, 64)
    return network(forward, decoder=nn.TransformerDecoder(layer, 1)), [
        "float32[6,B,32]",
        "float32[9,B,32]",
    ]


@program
def hand_einsum_attention():
    def forward(self, x):
        b, n, _ = x.shape
        q, k, v = self.qkv(x).view(b, n, 3, 4, 8).unbind(2)
        scores = torch.einsum("bihd,bjhd->bhij", q, k) * 8**-0.5
        mask = torch.ones(n, n, dtype=torch.bool).triu(1)
        weights = scores.masked_fill(mask, float("-inf")).softmax(-1)
        out = torch.einsum("bhij,bjhd->bihd", weights, v)
        return self.out(out.reshape(b, n, -1))

    return network(forward, qkv=nn.Linear(32, 96), out=nn.Linear(32, 32)), ["float32[B,9,32]"]


@program
def hand_window_attention():
    """Shifted windows: pad, roll, cut, attend, put together, roll back."""

    def forward(self, x):
        height, width = x.size(1), x.size(2)
        x = F.pad(x, (0, 0, 0, 2, 0, 1))
        x = torch.roll(x, shifts=(-2, -2), dims=(1, 2))
        b, h, w, c = x.shape
        windows = x.view(b, h // 4, 4, w // 4, 4, c)
        windows = windows.permute(0, 1, 3, 2, 4, 5).reshape(-1, 16, c)
        y, _ = self.attention(windows, windows, windows, need_weights=False)
        y = y.view(-1, h // 4, w // 4, 4, 4, c).permute(0, 1, 3, 2, 4, 5)
        y = torch.roll(y.reshape(b, h, w, c), shifts=(2, 2), dims=(1, 2))
        return y[:, :height, :width].contiguous()

    return network(forward, attention=nn.MultiheadAttention(16, 2, batch_first=True)), [
        "float32[B,11,14,16]"
    ]


@program
def hand_linear_attention():
    """Without softmax: keys and values are multiplied first; rotary."""

    def forward(self, x):
        q, k, v = self.qkv(x).chunk(3, dim=-1)
        position = torch.arange(x.size(1), dtype=x.dtype).unsqueeze(1)
        angle = position * torch.exp(-torch.arange(0, 16, 2) / 16.0)
        cos, sin = angle.cos().repeat(1, 2), angle.sin().repeat(1, 2)

        def turn(t):
            left, right = t[..., :8], t[..., 8:]
            return t * cos + torch.cat((-right, left), dim=-1) * sin

        q, k = F.elu(turn(q)) + 1, F.elu(turn(k)) + 1
        state = k.transpose(1, 2) @ v
        norm = (q * k.sum(1, keepdim=True)).sum(-1, keepdim=True)
        return (q @ state) / norm.clamp(min=1e-6)

    return network(forward, qkv=nn.Linear(16, 48)), ["float32[B,9,16]"]


# ---------------------------------------------------------------------------
# Convolutions


def block(inputs, outputs):
    return nn.Sequential(
        nn.Conv2d(inputs, outputs, 3, padding=1), nn.GroupNorm(4, outputs), nn.SiLU()
    )


@program
def hand_unet_attention():
    """A diffusion network: time embedding, attention in the middle, skips."""

    def forward(self, x, t):
        frequencies = torch.exp(torch.arange(8) * -0.5)
        angles = t.float()[:, None] * frequencies[None]
        time = self.time(torch.cat([angles.sin(), angles.cos()], dim=-1))
        one = self.down1(x)
        two = self.down2(F.avg_pool2d(one, 2))
        middle = self.middle(F.max_pool2d(two, 2)) + time[:, :, None, None]
        b, c, h, w = middle.shape
        tokens = middle.flatten(2).transpose(1, 2)
        tokens = tokens + self.attention(*[self.norm(tokens)] * 3)[0]
        middle = tokens.transpose(1, 2).reshape(b, c, h, w)
        up = F.interpolate(middle, scale_factor=2, mode="nearest")
        up = self.up2(torch.cat([up, two], 1))
        up = F.interpolate(up, size=x.shape[-2:], mode="bilinear", align_corners=False)
        return self.out(self.up1(torch.cat([up, one], 1)))

    return network(
        forward,
        time=nn.Sequential(nn.Linear(16, 32), nn.SiLU(), nn.Linear(32, 32)),
        down1=block(3, 8),
        down2=block(8, 16),
        middle=block(16, 32),
        norm=nn.LayerNorm(32),
        attention=nn.MultiheadAttention(32, 4, batch_first=True),
        up2=block(48, 16),
        up1=block(24, 8),
        out=nn.Conv2d(8, 3, 1),
    ), ["float32[B,3,32,32]", "int64[B]{0:1000}"]


@program
def hand_autoencoder():
    def forward(self, x):
        code = self.encoder(x)
        return self.decoder(code), code

    encoder = nn.Sequential(
        nn.Conv2d(3, 8, 3, 2, 1),
        nn.LeakyReLU(0.2),
        nn.Conv2d(8, 16, 4, 2, 1),
        nn.InstanceNorm2d(16, affine=True),
        nn.PReLU(16),
    )
    decoder = nn.Sequential(
        nn.ConvTranspose2d(16, 8, 4, 2, 1),
        nn.ReLU(),
        nn.ConvTranspose2d(8, 3, 3, 2, 1, output_padding=1),
        nn.Tanh(),
    )
    return network(forward, encoder=encoder, decoder=decoder), ["float32[B,3,32,32]"]


@program
def hand_vae():
    def forward(self, x):
        hidden = F.relu(self.encoder(x.flatten(1)))
        mean, log_variance = self.mean(hidden), self.log_variance(hidden)
        z = mean
        if self.training:
            z = z + torch.randn_like(z) * torch.exp(0.5 * log_variance)
        image = torch.sigmoid(self.decoder(z)).view(-1, 1, 14, 14)
        divergence = -0.5 * torch.sum(1 + log_variance - mean.pow(2) - log_variance.exp(), dim=1)
        return image, mean, divergence

    return network(
        forward,
        encoder=nn.Linear(196, 32),
        mean=nn.Linear(32, 8),
        log_variance=nn.Linear(32, 8),
        decoder=nn.Linear(8, 196),
    ), ["float32[B,1,14,14]"]


@program
def hand_audio_net():
    """Dilated, causal and gated convolutions over samples."""

    def forward(self, x):
        x = self.stem(x)
        for conv in (self.one, self.two):
            padded = F.pad(x, (2 * conv.dilation[0], 0))
            gate, value = conv(padded).chunk(2, dim=1)
            x = x + torch.tanh(value) * torch.sigmoid(gate)
        x = F.adaptive_avg_pool1d(F.relu(x), 4)
        return self.head(F.max_pool1d(x, 2).flatten(1))

    return network(
        forward,
        stem=nn.Conv1d(1, 8, 5, stride=2, bias=False),
        one=nn.Conv1d(8, 16, 3),
        two=nn.Conv1d(8, 16, 3, dilation=2),
        head=nn.Linear(16, 5),
    ), ["float32[B,1,100]"]


@program
def hand_conv3d():
    return nn.Sequential(
        nn.Conv3d(1, 8, 3, padding=1),
        nn.BatchNorm3d(8),
        nn.ReLU6(),
        nn.MaxPool3d(2),
        nn.ConvTranspose3d(8, 4, 2, stride=2),
        nn.AdaptiveAvgPool3d((2, 2, 2)),
        nn.Flatten(),
        nn.Linear(32, 5),
    ), ["float32[B,1,8,10,12]"]


@program
def hand_super_resolution():
    def forward(self, x):
        up = self.shuffle(self.conv2(F.gelu(self.conv1(x))))
        blurred = F.interpolate(x, scale_factor=2, mode="bicubic")
        return (up + blurred).clamp(0, 1), F.pixel_unshuffle(up, 2)

    return network(
        forward,
        conv1=nn.Conv2d(3, 16, 5, padding=2, padding_mode="reflect"),
        conv2=nn.Conv2d(16, 12, 3, padding="same"),
        shuffle=nn.PixelShuffle(2),
    ), ["float32[B,3,12,10]"]


@program
def hand_spatial_transformer():
    def forward(self, x):
        theta = self.locate(F.adaptive_max_pool2d(x, 4).flatten(1))
        grid = F.affine_grid(theta.view(-1, 2, 3), [x.size(0), 3, 16, 16], align_corners=False)
        return F.grid_sample(x, grid, align_corners=False)

    return network(forward, locate=nn.Linear(48, 6)), ["float32[B,3,20,24]"]


@program
def hand_channels_last():
    """Elementwise and normalising layers on a permuted image."""

    def forward(self, x):
        y = self.conv(x).permute(0, 2, 3, 1)
        y = self.mlp(self.norm(y)).permute(0, 3, 1, 2)
        return (x + y).contiguous(memory_format=torch.channels_last)

    return network(
        forward,
        conv=nn.Conv2d(8, 8, 7, padding=3, groups=8),
        norm=nn.LayerNorm(8),
        mlp=nn.Sequential(nn.Linear(8, 16), nn.GELU("tanh"), nn.Linear(16, 8)),
    ), ["float32[B,8,9,9]"]


@program
def hand_dynamic_filters():
    """Patches by unfold, filters per sample as a grouped convolution over
    the batch, and the way back by fold."""

    def forward(self, x):
        b, c, h, w = x.shape
        kernel = self.kernel(x.mean((2, 3))).view(b * c, 1, 3, 3)
        y = F.conv2d(x.reshape(1, b * c, h, w), kernel, padding=1, groups=b * c)
        y = y.view(b, c, h, w)
        patches = F.unfold(y, 2, stride=2)
        return F.fold(patches * 0.5, (h, w), 2, stride=2)

    return network(forward, kernel=nn.Linear(4, 36)), ["float32[B,4,8,8]"]


# ---------------------------------------------------------------------------
# Recommendation, points, graphs


@program
def hand_dlrm():
    """Dense features, bags of categories and their products."""

    def forward(self, dense, sparse):
        b = dense.size(0)
        offsets = torch.arange(b) * 4
        vectors = [self.bottom(dense)]
        for index, bag in enumerate((self.bag0, self.bag1, self.bag2)):
            vectors.append(bag(sparse[index].reshape(-1), offsets))
        stacked = torch.stack(vectors, dim=1)
        products = torch.bmm(stacked, stacked.transpose(1, 2))
        rows, columns = torch.tril_indices(4, 4, offset=-1)
        pairs = products[:, rows, columns]
        return torch.sigmoid(self.top(torch.cat([vectors[0], pairs], dim=1)))

    return network(
        forward,
        bottom=nn.Sequential(nn.Linear(13, 16), nn.ReLU()),
        bag0=nn.EmbeddingBag(30, 16, mode="sum"),
        bag1=nn.EmbeddingBag(40, 16, mode="mean"),
        bag2=nn.EmbeddingBag(50, 16, mode="sum"),
        top=nn.Linear(22, 1),
    ), ["float32[B,13]", "int64[3,B,4]{0:30}"]


@program
def hand_pointnet():
    """Points of a cloud in any order: a learnt transform, maximum over all."""

    def forward(self, points):
        turn = self.transform(points).amax(dim=2)
        turn = self.turn(turn).view(-1, 3, 3) + torch.eye(3)
        points = torch.bmm(points.transpose(1, 2), turn).transpose(1, 2)
        features = self.features(points)
        value, index = torch.max(features, 2, keepdim=True)
        both = torch.cat([features, value.expand(-1, -1, points.size(2))], 1)
        return self.head(both), index.squeeze(-1)

    return network(
        forward,
        transform=nn.Sequential(nn.Conv1d(3, 16, 1), nn.ReLU()),
        turn=nn.Linear(16, 9),
        features=nn.Sequential(nn.Conv1d(3, 16, 1), nn.BatchNorm1d(16), nn.ReLU()),
        head=nn.Conv1d(32, 4, 1),
    ), ["float32[B,3,25]"]


@program
def hand_nearest_neighbours():
    """Edges to the nearest points: distances, topk, gather."""

    def forward(self, points):
        distances = torch.cdist(points, points)
        nearest = distances.topk(4, dim=-1, largest=False)[1]
        b, n, k = nearest.shape
        index = nearest.reshape(b, n * k, 1).expand(-1, -1, points.size(-1))
        neighbours = points.gather(1, index).view(b, n, k, -1)
        centre = points.unsqueeze(2).expand_as(neighbours)
        edges = torch.cat([centre, neighbours - centre], dim=-1)
        return self.mlp(edges).max(dim=2).values.mean(1)

    return network(
        forward, mlp=nn.Sequential(nn.Linear(6, 16), nn.LeakyReLU(0.2), nn.Linear(16, 8))
    ), ["float32[B,15,3]"]


@program
def hand_message_passing():
    """Messages along edges: index_select, index_add, scatter."""

    def forward(self, nodes, edges):
        source, target = edges[0], edges[1]
        messages = torch.relu(
            self.message(torch.cat([nodes.index_select(0, source), nodes[target]], dim=1))
        )
        total = torch.zeros(nodes.size(0), 12).index_add(0, target, messages)
        degree = torch.zeros(nodes.size(0)).scatter_add_(
            0, target, torch.ones_like(target, dtype=nodes.dtype)
        )
        highest = torch.zeros_like(total).scatter_reduce(
            0, target[:, None].expand_as(messages), messages, "amax"
        )
        mean = total / degree.clamp(min=1).unsqueeze(-1)
        return self.update(torch.cat([nodes, mean, highest], dim=1))

    return network(forward, message=nn.Linear(16, 12), update=nn.Linear(32, 6)), [
        "float32[4*B,8]",
        "int64[2,3*B]{0:B}",
    ]


@program
def hand_batched_graph():
    """One dense adjacency matrix per sample, normalised by degrees."""

    def forward(self, x, adjacency):
        loops = adjacency + torch.eye(adjacency.size(-1))
        root = loops.sum(-1).rsqrt()
        normal = root.unsqueeze(-1) * loops * root.unsqueeze(-2)
        x = F.relu(torch.baddbmm(self.bias, normal, self.first(x)))
        return torch.matmul(normal, self.second(x)).logsumexp(1)

    return network(
        forward,
        first=nn.Linear(8, 16),
        second=nn.Linear(16, 4),
        bias=nn.Parameter(torch.zeros(1, 1, 16)),
    ), ["float32[B,7,8]", "float32[B,7,7]{0:1}"]


@program
def hand_siamese():
    """Both inputs through the same weights."""

    def forward(self, one, two):
        one = F.normalize(self.tower(one), dim=1)
        two = F.normalize(self.tower(two), dim=1)
        return F.cosine_similarity(one, two), torch.pairwise_distance(one, two)

    tower = nn.Sequential(nn.Conv2d(1, 8, 3), nn.ELU(), nn.Flatten(), nn.Linear(288, 16))
    return network(forward, tower=tower), ["float32[B,1,8,8]"] * 2


@program
def hand_mixture_of_experts():
    """Gates by topk and one_hot; every expert sees every sample."""

    def forward(self, x):
        weight, index = self.gate(x).softmax(-1).topk(2, dim=-1)
        weight = weight / weight.sum(-1, keepdim=True)
        chosen = F.one_hot(index, 4).to(x.dtype) * weight.unsqueeze(-1)
        hidden = torch.einsum("bd,edh->beh", x, self.up).relu()
        output = torch.einsum("beh,ehd->bed", hidden, self.down)
        return torch.einsum("bed,bke->bd", output, chosen)

    return network(
        forward,
        gate=nn.Linear(12, 4),
        up=nn.Parameter(torch.randn(4, 12, 24)),
        down=nn.Parameter(torch.randn(4, 24, 12)),
    ), ["float32[B,12]"]
