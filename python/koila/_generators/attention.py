"""Calls of attention and of recurrent layers."""

from koila._generators.generator import Batch, reads_data

FLOATS = ["float32"] * 5 + ["float64", "float16", "bfloat16"]


def spoiled(g, dims, dtype, strided=False):
    """A tensor that is now and then of a wrong type, rank or extent."""
    dims = list(dims)
    if g.spoil(0.15):
        dims = dims[1:] if g.chance(0.5) else [1, *dims]
    if dims and g.spoil(0.25):
        place = g.rng.randrange(len(dims))
        if not isinstance(dims[place], Batch):
            dims[place] += 1
    if g.spoil(0.1):
        dtype = "float64" if dtype == "float32" else "float32"
    return (g.strided if strided else g.tensor)(dims, dtype)


# Attention -------------------------------------------------------------------


def transposed(g, dims, dtype, dense=False):
    """Heads and steps exchanged, as networks have them. The flash kernel wants
    the last dim dense, but does not look."""
    if len(dims) == 4 and g.chance(0.5):
        x = g.tensor([dims[0], dims[2], dims[1], dims[3]], dtype, channels_last=False)
        name = f"t{len(g.prepared)}"
        g.prepare(f"{name} = torch.ops.aten.permute({x}, [0, 2, 1, 3])")
        return name
    if dense:
        return g.tensor(dims, dtype, channels_last=False)
    return g.strided(dims, dtype)


def attention(name, results="r"):
    flash = "flash" in name

    def make(g):
        dtype = g.dtype(FLOATS)
        rank = 4 if flash or g.chance(0.6) else g.rng.randint(2, 5)
        lead = [g.rng.randint(1, 4) for _ in range(rank - 2)]
        queries, keys = g.rng.randint(1, 6), g.rng.randint(1, 6)
        if g.chance(0.4):
            keys = queries
        depth = g.rng.randint(1, 5)
        values = depth if flash or g.chance(0.8) else g.rng.randint(1, 5)
        # The flash kernel divides by the number of queries.
        place = g.rng.random() * (0.75 if flash else 1)
        key_lead = value_lead = lead
        if lead and place < 0.75:
            lead[0] = g.batch()
        elif lead and place < 0.8:
            lead[-1] = g.batch()
        elif place < 0.9:
            queries = g.batch()
        elif not flash:
            keys = g.batch()
        grouped = "gqa" if not flash and rank > 2 and g.chance(0.2) else ""
        if grouped and isinstance(lead[-1], Batch):
            grouped = ""  # PyTorch divides by the number of heads.
        if grouped:
            key_lead = [*lead[:-1], lead[-1]]
            lead = [*lead[:-1], lead[-1] * g.pick(1, 2, 3)]
            value_lead = key_lead
        elif not flash and g.chance(0.1):
            key_lead = [1 if g.chance(0.5) else d for d in lead]
        own = [*lead, queries, depth]
        if g.spoil(0.4) and not isinstance(own[-1], Batch):
            own[-1] += 1
        if g.spoil(0.1):
            own = own[-1:]
        q = transposed(g, own, dtype, flash)
        k = transposed(g, [*key_lead, keys, depth], dtype, flash)
        v = transposed(
            g, [*value_lead, keys, values], dtype if not g.spoil(0.2) else "float64", flash
        )
        mask, causal = "None", g.chance(0.25)
        if not causal and g.chance(0.5):
            dims = [*lead, queries, keys]
            dims = [1 if g.chance(0.3) else d for d in dims]
            # The flash kernel takes masks of rank 2 and 4.
            if (rank == 4 and g.chance(0.6)) or rank == 5:
                dims = dims[-2:]
            if g.spoil(0.4):
                dims[-1] = 7
            kind = g.pick("bool", dtype, dtype, "float32")
            # By way of matmul and softmax it is added in place, as any numbers.
            if name.endswith("_math") and kind == "float32":
                kind = "float64"
            mask = g.strided(dims, kind)
        text = f"{results} = torch.ops.aten.{name}({q}, {k}, {v}, "
        if flash:
            text += f"0.0, {causal}, attn_mask={mask}"
        else:
            text += f"{mask}, 0.0, {causal}"
        if g.chance(0.3):
            text += ", scale=0.5"
        if grouped:
            text += ", enable_gqa=True"
        return g.call(text + ")")

    return make


def layer_weights(g, width, dtype):
    """With a projection of another width, sequences of that width come out;
    no network has one."""
    checked = [spoiled(g, dims, dtype) for dims in ([3 * width, width], [3 * width])]
    return ", ".join(checked + [g.tensor(dims, dtype) for dims in ([width, width], [width])])


def mask_of(g, batch, heads, steps, allowed=(0, 1, 2)):
    kind = g.pick(None, None, *allowed)
    if kind is None:
        return "None", None
    dims = {0: [steps, steps], 1: [batch, steps], 2: [batch, heads, steps, steps]}[kind]
    return g.tensor(dims, "bool", 0, 1, channels_last=False), kind


def multi_head(g):
    dtype = g.dtype(["float32"] * 4 + ["float64"])
    heads, steps = g.rng.randint(1, 3), g.rng.randint(1, 5)
    width = heads * g.rng.randint(1, 4)
    # Without samples there is no second tensor. The encoder layer shares the
    # batch rule.
    batch = g.rng.randint(1, 4)
    x = spoiled(g, [batch, steps, width], dtype, strided=True)
    if g.spoil(0.2):
        heads = width + 1
    weights = layer_weights(g, width, dtype)
    mask, kind = mask_of(g, batch, heads, steps)
    text = (
        f"r, w = torch.ops.aten._native_multi_head_attention({x}, {x}, "
        f"{x}, {width}, {heads}, {weights}, {mask}, True, "
        f"{g.chance(0.5)}, {kind})"
    )
    return g.call(text)


def encoder_layer(g):
    dtype = g.dtype(["float32"] * 4 + ["float64"])
    heads, steps = g.rng.randint(1, 3), g.rng.randint(1, 5)
    width, inner = heads * g.rng.randint(1, 4), g.rng.randint(1, 6)
    batch = g.batch()
    x = spoiled(g, [batch, steps, width], dtype, strided=True)
    if g.spoil(0.2):
        heads = width + 1
    weights = layer_weights(g, width, dtype)
    norms = ", ".join(g.tensor([width], dtype) for _ in range(4))
    feed = ", ".join(
        g.tensor(dims, dtype) for dims in ([inner, width], [inner], [width, inner], [width])
    )
    mask, kind = mask_of(g, batch, heads, steps)
    text = (
        f"r = torch.ops.aten._transformer_encoder_layer_fwd({x}, {width}, "
        f"{heads}, {weights}, {g.chance(0.5)}, {g.chance(0.5)}, 1e-05, "
        f"{norms}, {feed}, {mask}, {kind})"
    )
    return g.call(text)


# Recurrent layers ------------------------------------------------------------


def cell_weights(g, gates, inputs, hidden, biases, dtype, projected=0, checked=True):
    """Not every kernel of a whole LSTM checks its weights."""
    state = projected or hidden
    dims = [[gates * hidden, inputs], [gates * hidden, state]]
    if biases:
        dims += [[gates * hidden]] * 2
    if projected:
        dims += [[projected, hidden]]
    return [
        spoiled(g, d, dtype) if len(d) == 2 and checked and g.chance(0.5) else g.tensor(d, dtype)
        for d in dims
    ]


def width(g, most):
    """Seldom one that is more than a line of a cache, or a block of columns."""
    return g.pick(16, 33, 64, 100, 256) if g.chance(0.1) else g.rng.randint(1, most)


def layer(name, gates, packed=False):
    def make(g):
        dtype = g.dtype(["float32"] * 5 + ["float64"])
        inputs, hidden = width(g, 4), width(g, 4)
        layers, both = g.rng.randint(1, 2), g.chance(0.4)
        directions = 2 if both else 1
        biases, first = g.chance(0.7), g.chance(0.5)
        steps = g.rng.randint(1, 4) if not g.spoil(0.15) else 0
        batch = g.batch() if not packed else g.rng.randint(1, 3)
        projected = 0
        if gates == 4 and hidden > 1 and g.chance(0.15):
            projected = hidden - 1
        params = []
        for index in range(layers):
            for _ in range(directions):
                own = (projected or hidden) * directions if index else inputs
                params += cell_weights(
                    g, gates, own, hidden, biases, dtype, projected, checked=gates != 4
                )
        if g.spoil(0.3):
            params = params[:-1] if g.chance(0.5) else params[1:]
        cells = layers * directions
        # An LSTM does not check its hidden states in every kernel.
        if gates != 4 and g.spoil(0.2):
            cells = cells - 1 or 3
        states = [g.strided([cells, batch, projected or hidden], dtype)]
        if gates == 4:
            states.append(g.strided([cells, batch, hidden], dtype))
        hx = states[0] if gates != 4 else f"[{', '.join(states)}]"
        results = "r, h, c" if gates == 4 else "r, h"
        if gates == 4 and g.spoil(0.2):
            hx = f"[{states[0]}]"
        if packed:
            # All samples have all steps.
            sizes = g.tensor([max(steps, 1)], "int64", batch, batch + 1)
            data = g.strided([max(steps, 1) * batch, inputs], dtype)
            return g.call(
                f"{results} = torch.ops.aten.{name}({data}, {sizes}, {hx}, "
                f"[{', '.join(params)}], {biases}, {layers}, 0.0, False, "
                f"{both})"
            )
        dims = [batch, steps, inputs] if first else [steps, batch, inputs]
        if gates != 4 and g.spoil(0.2):
            dims[-1] += 1
        x = g.strided(dims, dtype)
        return g.call(
            f"{results} = torch.ops.aten.{name}({x}, {hx}, "
            f"[{', '.join(params)}], {biases}, {layers}, 0.0, False, {both}, "
            f"{first})"
        )

    return make


def cell(name, gates):
    def make(g):
        dtype = g.dtype(["float32"] * 5 + ["float64"])
        inputs, hidden = g.rng.randint(1, 5), g.rng.randint(1, 5)
        batch = g.batch()
        x = spoiled(g, [batch, inputs], dtype, strided=True)
        states = [
            spoiled(g, [batch, hidden], dtype, strided=True) for _ in range(2 if gates == 4 else 1)
        ]
        hx = states[0] if gates != 4 else f"[{', '.join(states)}]"
        weights = cell_weights(g, gates, inputs, hidden, g.chance(0.6), dtype)
        results = "r, c" if gates == 4 else "r"
        return g.call(f"{results} = torch.ops.aten.{name}({x}, {hx}, {', '.join(weights)})")

    return make


# Packed sequences ------------------------------------------------------------


@reads_data
def pack(g):
    first = g.chance(0.5)
    batch, steps = g.rng.randint(1, 4), g.rng.randint(1, 5)
    dims = [batch, steps] if first else [steps, batch]
    dims += [g.rng.randint(1, 3) for _ in range(g.rng.randint(0, 2))]
    if g.spoil(0.3):
        dims = dims[:1]
    x = g.strided(dims)
    length = g.rng.randint(1, steps)
    lengths = g.tensor([batch] if not g.spoil() else [batch, 1], "int64", length, length + 1)
    return g.call(f"r, s = torch.ops.aten._pack_padded_sequence({x}, {lengths}, {first})")


@reads_data
def pad(g):
    batch, steps = g.rng.randint(1, 4), g.rng.randint(1, 5)
    tail = [g.rng.randint(1, 3) for _ in range(g.rng.randint(0, 2))]
    data = g.strided([batch * steps, *tail])
    sizes = g.tensor([steps], "int64", batch, batch + 1)
    total = g.pick(-1, 0, steps, steps + 2)
    if g.spoil(0.9):
        total = max(steps - 1, 1)
    return g.call(
        f"r, s = torch.ops.aten._pad_packed_sequence({data}, "
        f"{sizes}, {g.chance(0.5)}, 0.0, {total})"
    )


GENERATORS = {
    "aten::scaled_dot_product_attention": attention("scaled_dot_product_attention"),
    "aten::_scaled_dot_product_attention_math": attention(
        "_scaled_dot_product_attention_math", "r, s"
    ),
    "aten::_scaled_dot_product_flash_attention_for_cpu": attention(
        "_scaled_dot_product_flash_attention_for_cpu", "r, s"
    ),
    "aten::_native_multi_head_attention": multi_head,
    "aten::_transformer_encoder_layer_fwd": encoder_layer,
    "aten::_pack_padded_sequence": pack,
    "aten::_pad_packed_sequence": pad,
}
for _name, _gates in (("lstm", 4), ("gru", 3), ("rnn_tanh", 1), ("rnn_relu", 1)):
    GENERATORS[f"aten::{_name}.input"] = layer(_name, _gates)
    GENERATORS[f"aten::{_name}.data"] = layer(_name, _gates, packed=True)
    GENERATORS[f"aten::{_name}_cell"] = cell(f"{_name}_cell", _gates)
