"""Calls of Fourier transforms."""

from koila._generators.generator import ANY, COMPLEX, Batch

REAL = ["float32"] * 5 + ["float64", "int64", "int32", "bool"]
TYPES = REAL + COMPLEX


def size(g):
    if g.spoil(0.3):
        return g.pick(0, -1)
    return g.rng.randint(1, 9)


def plain(dims):
    """Dims that do not follow the batch; all if there are none."""
    found = [i for i, d in enumerate(dims) if not isinstance(d, Batch)]
    return found or list(range(len(dims)))


def choose(g, dims, count=1):
    """Dims to transform: seldom that of the batch."""
    among = plain(dims) if g.chance(0.85) else list(range(len(dims)))
    if len(among) < count:
        among = list(range(len(dims)))
    return g.rng.sample(among, min(count, len(among)))


def extents(g, rank):
    """Half a spectrum of one element transforms no point."""
    return g.dims(rank, low=2 if g.chance(0.9) else 1)


def norm(g):
    return f", norm='{g.pick('ortho', 'forward', 'backward')}'" if g.chance(0.3) else ""


def one(name, types):
    def make(g):
        dims = extents(g, g.rank(1, 5))
        x = g.strided(dims, g.dtype(types if not g.spoil(0.2) else TYPES))
        n = size(g) if g.chance(0.4) else None
        if g.spoil(0.3) or not dims:
            dim = g.pick(5, -6)
        else:
            dim = choose(g, dims)[0]
            dim = dim - len(dims) if g.chance(0.5) else dim
        text = f"r = torch.ops.aten.{name}({x}, {n}, {dim}{norm(g)})"
        if n is None and dims and dim in (-1, len(dims) - 1) and g.chance(0.5):
            text = f"r = torch.ops.aten.{name}({x})"
        if n is not None and g.chance(0.2):
            own = g.tensor([max(n, 0), 2], channels_last=False)
            g.prepare(f"n = torch.ops.aten.size({own}, 0)")
            text = text.replace(f", {n}, ", ", n, ", 1)
        return g.call(text)

    return make


def many(name, types, two):
    def make(g):
        dims = extents(g, g.rank(2 if two else 1, 5))
        x = g.strided(dims, g.dtype(types if not g.spoil(0.2) else TYPES))
        count = 2 if two else g.rng.randint(1, 3)
        chosen = choose(g, dims, count) if dims else [0]
        chosen = [d - len(dims) if g.chance(0.3) else d for d in chosen]
        if g.spoil(0.2):
            chosen = [*chosen, g.pick(7, chosen[0])]
        # The default dims are often those of the batch.
        if g.chance(0.35) or not dims:
            chosen = None
        sizes = None
        if g.chance(0.35):
            length = len(chosen) if chosen is not None else count
            if g.spoil(0.3):
                length += 1
            sizes = [-1 if g.chance(0.2) else size(g) for _ in range(length)]
        text = f"r = torch.ops.aten.{name}({x}, {sizes}"
        if chosen is not None:
            text += f", {chosen}"
        return g.call(text + norm(g) + ")")

    return make


def shift(name):
    def make(g):
        dims = g.dims(g.rng.randint(0, 5))
        x = g.strided(dims, g.dtype(ANY + COMPLEX))
        if not dims or g.chance(0.3):
            return g.call(f"r = torch.ops.aten.{name}({x})")
        chosen = choose(g, dims, g.rng.randint(1, 3))
        if g.spoil():
            chosen = [g.pick(6, -7)]
        return g.call(f"r = torch.ops.aten.{name}({x}, {chosen})")

    return make


def frequencies(name):
    def make(g):
        n = g.rng.randint(1, 9) if not g.spoil(0.9) else -g.rng.randint(1, 60)
        spacing = g.pick(1.0, 0.5, 2.0, 0.1)
        dtype = ""
        if g.chance(0.3):
            dtype = f", dtype={g.pick(6, 7)}"
        if n > 0 and g.chance(0.3):
            x = g.tensor([g.batch() if g.chance(0.5) else n, 2], channels_last=False)
            g.prepare(f"n = torch.ops.aten.size({x}, 0)")
            n = "n"
        return g.call(f"r = torch.ops.aten.{name}({n}, {spacing}{dtype})")

    return make


def window_of(g, width, dtype):
    if g.chance(0.3):
        return "None"
    return g.tensor([width + (1 if g.spoil(0.2) else 0)], dtype)


def stft(center):
    def make(g):
        dtype = g.dtype(["float32", "float32", "float64"])
        if g.spoil(0.1):
            dtype = "int64"
        points = g.rng.randint(1, 8) if not g.spoil(0.1) else g.pick(0, 90)
        hop = g.rng.randint(1, 5) if points < 4 or g.chance(0.6) else None
        width = g.rng.randint(1, max(points, 1)) if g.chance(0.4) else None
        if g.spoil(0.2):
            width = points + 1
        if g.spoil(0.15):
            hop = 0
        length = g.rng.randint(10, 30)
        dims = [g.batch(), length] if g.chance(0.75) else [length]
        if g.chance(0.05):
            dims[-1] = Batch(3) if g.symbolic else 9
        if g.spoil(0.15):
            dims = [2, 2, *dims]
        x = g.strided(dims, dtype)
        window = window_of(g, width or points, dtype.replace("int", "float"))
        one = g.pick(None, True, False)
        given = g.pick(True, True, False) if not g.spoil(0.15) else None
        middle = ""
        if center:
            mode = g.pick("reflect", "constant")
            middle = f"{g.chance(0.7)}, '{mode}', "
        return g.call(
            f"r = torch.ops.aten.stft({x}, {points}, {hop}, {width}, "
            f"{window}, {middle}{g.chance(0.3)}, {one}, {given})"
        )

    return make


def istft(g):
    dtype = g.dtype(["complex64", "complex64", "complex128"])
    points = g.rng.randint(2, 8)
    hop = g.rng.randint(1, max(points // 2, 1))
    one = g.pick(None, True, False)
    bins = points if one is False else points // 2 + 1
    if g.spoil(0.5):
        bins += 1
    frames = g.rng.randint(4, 8)
    dims = [g.batch(), bins, frames] if g.chance(0.8) else [bins, frames]
    if g.spoil(0.3):
        dims = dims[-1:]
    x = g.strided(dims, dtype)
    length = g.rng.randint(1, points * 2) if g.chance(0.3) else None
    window = (
        "None"
        if g.chance(0.5)
        else g.tensor([points], "float32" if dtype == "complex64" else "float64")
    )
    return g.call(
        f"r = torch.ops.aten.istft({x}, {points}, {hop}, None, "
        f"{window}, True, {g.chance(0.3)}, {one}, {length})"
    )


GENERATORS = {"aten::stft": stft(False), "aten::stft.center": stft(True), "aten::istft": istft}
for _name, _types in (
    ("fft", TYPES),
    ("ifft", TYPES),
    ("rfft", REAL),
    ("ihfft", REAL),
    ("irfft", TYPES),
    ("hfft", TYPES),
):
    GENERATORS[f"aten::fft_{_name}"] = one(f"fft_{_name}", _types)
    for _suffix in ("2", "n"):
        GENERATORS[f"aten::fft_{_name}{_suffix}"] = many(
            f"fft_{_name}{_suffix}", _types, _suffix == "2"
        )
for _name in ("fft_fftshift", "fft_ifftshift"):
    GENERATORS[f"aten::{_name}"] = shift(_name)
for _name in ("fft_fftfreq", "fft_rfftfreq"):
    GENERATORS[f"aten::{_name}"] = frequencies(_name)
