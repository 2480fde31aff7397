"""Calls of products with matrices and of functions of matrices."""

import itertools

from koila._generators.generator import FLOATS, Batch

TYPES = [*FLOATS, "int64", "int32", "uint8", "complex64", "complex128"]
LAPACK = ["float32"] * 4 + ["float64", "complex64", "complex128"]


def extent(g):
    return 0 if g.chance(0.03) else g.rng.randint(1, g.most)


def matrix(g, dims, dtype):
    """A tensor whose dims may be transposed, and now and then of a wrong
    type, rank or extent."""
    dims = list(dims)
    if g.spoil(0.25):
        dims = dims[1:] if dims and g.chance(0.5) else [*dims, 2]
    if dims and g.spoil(0.4):
        place = g.rng.randrange(len(dims))
        if not isinstance(dims[place], Batch):
            dims[place] = dims[place] + 1
    if g.spoil(0.15):
        dtype = g.dtype(TYPES)
    return g.strided(dims, dtype)


def number(g, dtype):
    return g.pick(1, 2, 0) if "int" in dtype else g.pick(1, 0.5, 0, 2)


def spread(g, count):
    """Extents of which at most one follows the batch."""
    dims = [extent(g) for _ in range(count)]
    if count and g.chance(0.75):
        dims[g.rng.randrange(count)] = g.batch()
    return dims


def product(name, equation, types=TYPES):
    """A product of tensors whose dims have letters."""
    terms = equation.split("->")[0].split(",")

    def make(g):
        dtype = g.dtype(types)
        letters = sorted(set("".join(terms)))
        sizes = dict(zip(letters, spread(g, len(letters)), strict=True))
        values = [matrix(g, [sizes[c] for c in term], dtype) for term in terms]
        arguments = ", ".join(values)
        return g.call(f"r = torch.ops.aten.{name}({arguments})")

    return make


def added(name, equation, in_place=False):
    terms, result = equation.split("->")
    terms = terms.split(",")

    def make(g):
        dtype = g.dtype(TYPES)
        letters = sorted(set("".join(terms)))
        sizes = dict(zip(letters, spread(g, len(letters)), strict=True))
        whole = [sizes[c] for c in result]
        values = [matrix(g, [sizes[c] for c in term], dtype) for term in terms]
        if in_place:
            if g.spoil() and not isinstance(whole[-1], Batch):
                whole[-1] += 1
            own = g.tensor(whole, dtype, channels_last=False)
            g.prepare(f"own = torch.ops.aten.neg({own})" if dtype != "bool" else f"own = {own}")
            own = "own"
        else:
            # Of an empty vector addmv takes the shape of what it adds.
            own = g.strided(whole if name == "addmv" and not g.wrong else g.broadcast(whole), dtype)
        text = f"r = torch.ops.aten.{name}({own}, {', '.join(values)}"
        if g.chance(0.5):
            text += f", beta={number(g, dtype)}, alpha={number(g, dtype)}"
        return g.call(text.replace("%", "%%") + ")")

    return make


def linear(g):
    dtype = g.dtype(FLOATS)
    rank = g.rng.randint(1, 4)
    dims = g.dims(rank)
    if g.most > 6 and not isinstance(dims[-1], Batch):
        dims[-1] = extent(g)
    weight = [extent(g), dims[-1]] if g.chance(0.9) else [dims[-1]]
    if isinstance(dims[-1], Batch) and g.chance(0.7):
        dims[-1] = weight[-1] = 3
    x = g.strided(dims, dtype)
    w = matrix(g, weight, dtype)
    if g.chance(0.5):
        return g.call("r = torch.ops.aten.linear(%s, %s)", x, w)
    bias = g.strided([weight[0]] if len(weight) > 1 else [], dtype)
    return g.call("r = torch.ops.aten.linear(%s, %s, %s)", x, w, bias)


def bilinear(g):
    dtype = g.dtype(FLOATS)
    dims = g.dims(g.rng.randint(0, 3))
    i, j, o = extent(g), extent(g), extent(g)
    a = matrix(g, [*dims, i], dtype)
    b = matrix(g, [*dims, j], dtype)
    w = matrix(g, [o, i, j], dtype)
    bias = g.tensor([o], dtype) if g.chance(0.5) else "None"
    return g.call("r = torch.ops.aten.bilinear(%s, %s, %s, %s)", a, b, w, bias)


def matmul(name):
    def make(g):
        dtype = g.dtype(TYPES)
        left, right = g.rng.randint(0, 5), g.rng.randint(0, 5)
        if not g.wrong:
            left, right = max(left, 1), max(right, 1)
        n, k, m = spread(g, 3)
        lead = g.dims(max(left, right, 2) - 2)
        if any(isinstance(d, Batch) for d in (n, k, m)) and g.chance(0.8):
            lead = [3 if isinstance(d, Batch) else d for d in lead]
        a, b = list(lead), list(lead)
        for dims in (a, b):
            for place in range(len(dims)):
                if g.chance(0.15):
                    dims[place] = 1
        a = ([*a, n, k])[-left:] if left > 1 else [k][:left]
        b = ([*b, k, m])[-right:] if right > 1 else [k][:right]
        return g.call(
            f"r = torch.ops.aten.{name}(%s, %s)", matrix(g, a, dtype), matrix(g, b, dtype)
        )

    return make


def inner(g):
    dtype = g.dtype(TYPES)
    k = extent(g)
    a, b = g.dims(g.rng.randint(0, 2)), [extent(g)] * g.rng.randint(0, 2)
    left, right = [*a, k], [*b, k]
    if g.chance(0.15):
        left = []
    elif g.chance(0.15):
        right = []
    return g.call(
        "r = torch.ops.aten.inner(%s, %s)", matrix(g, left, dtype), matrix(g, right, dtype)
    )


def observed(g):
    """Rows of which the columns are observations, or one row. As squeeze() does,
    a batch of one row would drop its dim."""
    dims = [Batch(2) if isinstance(d, Batch) else d for d in g.dims(g.rank(0, 2))]
    return dims, g.strided(dims, "bool" if g.spoil(0.2) else g.dtype(TYPES))


def cov(g):
    dims, x = observed(g)
    count = dims[-1] if dims else 1
    if g.spoil(0.3) and not isinstance(count, Batch):
        count += 1
    arguments = [f"correction={g.pick(0, 1, 1, 2)}"]
    for name, types, wrong in (
        ("fweights", ["int64", "int32"], "float32"),
        ("aweights", FLOATS[:2], "int64"),
    ):
        if g.chance(0.12):
            dtype = wrong if g.spoil(0.3) else g.pick(*types)
            g.prepare(f"p{name} = torch.ops.aten.abs({g.tensor([count], dtype, 1, 3)})")
            arguments.append(f"{name}=p{name}")
    return g.call(f"r = torch.ops.aten.cov({x}, {', '.join(arguments)})")


def corrcoef(g):
    return g.call(f"r = torch.ops.aten.corrcoef({observed(g)[1]})")


def tensordot(g):
    dtype = g.dtype(TYPES)
    pairs = g.rng.randint(0, 2)
    shared = spread(g, pairs)
    left = shared + [extent(g) for _ in range(g.rng.randint(0, 2))]
    right = shared + [extent(g) for _ in range(g.rng.randint(0, 2))]
    if not any(isinstance(d, Batch) for d in left) and len(left) > pairs:
        left[-1] = g.batch()
    places = []
    for dims in (left, right):
        order = list(range(len(dims)))
        g.rng.shuffle(order)
        moved = [dims[i] for i in order]
        found = [order.index(i) for i in range(pairs)]
        dims[:] = moved
        places.append([p - len(dims) if g.chance(0.3) else p for p in found])
    if g.spoil():
        places[0] = places[0] + [g.pick(0, 4)]
    if pairs and g.chance(0.1):
        right[places[1][0]] = 1
    return g.call(
        "r = torch.ops.aten.tensordot(%s, %s, %s, %s)",
        matrix(g, left, dtype),
        matrix(g, right, dtype),
        *places,
    )


def kron(g):
    a, b = g.dims(g.rng.randint(0, 3)), [extent(g)] * g.rng.randint(0, 3)
    if g.chance(0.3):
        a, b = b, a
    types = ["float32", "float64", "int64", "int32", "complex64"]
    return g.call(
        "r = torch.ops.aten.kron(%s, %s)",
        g.strided(a, g.dtype(types)),
        g.strided(b, g.dtype(types)),
    )


def multi_dot(g):
    dtype = g.dtype(["float32", "float64", "complex64"])
    sizes = spread(g, g.rng.randint(3, 5))
    terms = [list(pair) for pair in itertools.pairwise(sizes)]
    if g.chance(0.2):
        terms[0] = terms[0][1:]
    if g.chance(0.2):
        terms[-1] = terms[-1][:1]
    values = ", ".join(matrix(g, term, dtype) for term in terms)
    return g.call(f"r = torch.ops.aten.linalg_multi_dot([{values}])")


def cross(name):
    def make(g):
        dtype = g.dtype(["float32", "float64", "int64", "complex64", "float16"])
        dims = g.dims(g.rng.randint(1, 4))
        dim = g.rng.randrange(len(dims))
        if isinstance(dims[dim], Batch) and len(dims) > 1 and g.chance(0.9):
            dim = (dim + 1) % len(dims)
        dims[dim] = 3 if not g.spoil() else 4
        other = [1 if i != dim and g.chance(0.2) else d for i, d in enumerate(dims)]
        if name == "cross" and g.chance(0.4):
            return g.call(
                "r = torch.ops.aten.cross(%s, %s)", g.strided(dims, dtype), matrix(g, dims, dtype)
            )
        place = dim - len(dims) if g.chance(0.5) else dim
        if g.spoil(0.2):
            place = 5
        return g.call(
            f"r = torch.ops.aten.{name}(%s, %s, dim=%s)",
            g.strided(dims, dtype),
            matrix(g, other, dtype),
            place,
        )

    return make


EQUATIONS = [
    "ij->ji",
    "ij->",
    "ij->i",
    "ij",
    "ba",
    "ii->i",
    "ii",
    "iij->ji",
    "...ij->...ji",
    "...i->...",
    "bhwc->bchw",
    "ij,jk->ik",
    "bij,bjk->bik",
    "bij,jk->bik",
    "ij,jk->ki",
    "bij,jk->kbi",
    "bqhd,bkhd->bhqk",
    "bhqk,bkhd->bqhd",
    "i,j->ij",
    "bi,bj->bij",
    "bi,bi->b",
    "bi,bi->",
    "bi,bj->ij",
    "bhwc,hkc->bhwk",
    "...ij,...jk->...ik",
    "ij,ij->ij",
    "bn,anm,bm->ba",
    "ij,jk,kl->il",
    "bi,bi,bi->b",
    "nkctv,kvw->nctw",
    "bcij,bcjk->bcki",
    "i,i->",
    "ij,kl->ijkl",
    "...,...->...",
    "ij , jk",
    "bld,dk->blk",
    "btd,hdk->bhtk",
    "bij,bkj->bik",
    "i...,i...->...",
    "bij,bkl->ik",
    "ab,bc,cd,de->ae",
    "bi,oij,bj->bo",
    "xy,xz->yz",
]


def einsum(g):
    equation = g.pick(*EQUATIONS)
    dtype = g.dtype(["float32"] * 5 + ["float64", "int64", "int32", "complex64", "float16"])
    terms = equation.split("->")[0].replace(" ", "").split(",")
    letters = []
    for letter in "".join(terms):
        if letter.isalpha() and letter not in letters:
            letters.append(letter)
    sizes = {c: extent(g) for c in letters}
    lead = [extent(g) for _ in range(g.rng.randint(0, 2))]
    if lead and g.chance(0.7):
        lead[0] = g.batch()
    elif letters:
        sizes[letters[0] if g.chance(0.6) else g.pick(*letters)] = g.batch()
    values = []
    for term in terms:
        dims = []
        parts = term.replace("...", ".")
        for letter in parts:
            dims += lead if letter == "." else [sizes[letter]]
        if g.chance(0.15) and dims:
            dims[g.rng.randrange(len(dims))] = 1
        values.append(matrix(g, dims, dtype))
    if g.spoil(0.2):
        equation = g.pick("ij->k", "ij->ii", "i.j", equation + "z")
    path = ""
    if g.chance(0.3):
        steps = []
        for left in range(len(terms), 1, -1):
            steps += g.rng.sample(range(left), 2)
        if g.spoil():
            steps = [*steps, 0]
        path = f", path={steps}" if steps else ""
    return g.call(f"r = torch.ops.aten.einsum('{equation}', [{', '.join(values)}]{path})")


# Functions of matrices -------------------------------------------------------


def matrix_function(name, results="r", square=True, options=("",), types=tuple(LAPACK)):
    def make(g):
        lead = g.dims(g.rng.randint(0, 2))
        n = extent(g)
        m = n if square else extent(g)
        if lead and not isinstance(lead[0], Batch) and g.chance(0.1) and not square:
            n = g.batch()
        x = matrix(g, [*lead, n, m], g.dtype(types))
        return g.call(f"{results} = torch.ops.aten.{name}({x}{g.pick(*options)})")

    return make


def positive(name, results="r", options=("",)):
    """Functions of positive definite matrices."""

    def make(g):
        lead, n = g.dims(g.rng.randint(0, 2)), extent(g)
        dtype = g.dtype(["float32", "float32", "float64"])
        # What is wrong must not depend on the data.
        if g.wrong:
            dims = g.pick([n], [*lead, n, n + 1], [*lead, n, n])
            if dims == [*lead, n, n]:
                dtype = g.pick("int64", "float16", "bool")
            x = g.strided(dims, dtype)
        else:
            x = g.strided([*lead, n, n], dtype)
            g.prepare(f"t = torch.ops.aten.mul({x}, 0.01)")
            eye = g.tensor([n, n], dtype, channels_last=False)
            g.prepare(f"i = torch.ops.aten.linalg_matrix_power({eye}, 0)")
            g.prepare("s = torch.ops.aten.add(t, i)")
            x = "s"
        return g.call(f"{results} = torch.ops.aten.{name}({x}{g.pick(*options)})")

    return make


def power(name):
    def make(g):
        lead, n = g.dims(g.rng.randint(0, 2)), extent(g)
        exponent = g.pick(0, 1, 2, 3, -1, -2)
        types = ["float32", "float64"]
        x = matrix(g, [*lead, n, n], g.dtype(types + ["int64"] * (exponent >= 0)))
        return g.call(f"r = torch.ops.aten.{name}({x}, {exponent})")

    return make


def regular(g, dims, dtype):
    """Random matrices; no rows or columns are the same."""
    if g.spoil(0.4):
        dims = dims[1:] if g.chance(0.5) else [*dims[:-1], dims[-1] + 1]
    if len(dims) < 2 or g.chance(0.6):
        return g.tensor(dims, dtype, channels_last=False)
    x = g.tensor([*dims[:-2], dims[-1], dims[-2]], dtype, channels_last=False)
    order = [*range(len(dims) - 2), len(dims) - 1, len(dims) - 2]
    g.prepare(f"a = torch.ops.aten.permute({x}, {order})")
    return "a"


def solve(name, results="r"):
    def make(g):
        dtype = g.dtype(LAPACK)
        lead, n, k = g.dims(g.rng.randint(0, 2)), extent(g), extent(g)
        if not lead and g.chance(0.5):
            k = g.batch()
        a = regular(g, [*lead, n, n], dtype)
        kind = g.rng.random()
        left = kind < 0.7
        tail = [n, k] if left else [k, n]
        if kind < 0.2:
            tail = [n]
        own = lead if kind < 0.2 else g.broadcast(lead)
        if kind < 0.05:
            own = []
        if len(own) < len(lead) and k == n and left and kind >= 0.2:
            tail = [n, k + 1]  # Else these may be vectors.
        b = matrix(g, own + tail, dtype)
        return g.call(f"{results} = torch.ops.aten.{name}({a}, {b}, left={left})")

    return make


def triangular(name, arguments):
    """Solutions by triangles. `arguments` formats matrices `a` and right sides
    `b`, which may stand on the other side where there is `{left}`."""

    def make(g):
        dtype = g.dtype(LAPACK)
        lead, n, k = g.dims(g.rng.randint(0, 2)), extent(g), extent(g)
        a = regular(g, [*lead, n, n], dtype)
        left = "{left}" not in arguments or g.chance(0.7)
        own = g.broadcast(lead) if g.chance(0.3) else lead
        b = matrix(g, own + ([n, k] if left else [k, n]), dtype)
        return g.call(f"r = torch.ops.aten.{name}({arguments.format(a=a, b=b, left=left)})")

    return make


def exponential(name):
    """Of contiguous matrices: PyTorch takes others only if they are a view."""

    def make(g):
        lead, n = g.dims(g.rng.randint(0, 2)), extent(g)
        dtype = "int64" if g.spoil() else g.dtype(["float32", "float32", "float64"])
        x = g.tensor([*lead, n, n], dtype, channels_last=False)
        return g.call(f"r = torch.ops.aten.{name}({x})")

    return make


def householder(g):
    dtype = g.dtype(LAPACK)
    lead, n = g.dims(g.rng.randint(0, 2)), extent(g)
    m = n + 1 if g.chance(0.5) else n
    x = matrix(g, [*lead, m, n], dtype)
    tau = g.tensor([*lead, n], dtype, channels_last=False)
    return g.call(f"r = torch.ops.aten.linalg_householder_product({x}, {tau})")


def sure(make):
    """An extent that is wrong in a call with a symbol may be the right one."""

    def generate(g):
        g.symbolic = g.symbolic and not g.wrong
        return make(g)

    return generate


GENERATORS = {
    "aten::linear": linear,
    "aten::mm": product("mm", "nk,km->nm"),
    "aten::bmm": product("bmm", "bnk,bkm->bnm"),
    "aten::mv": product("mv", "nk,k->n"),
    "aten::dot": product("dot", "k,k->"),
    "aten::vdot": product("vdot", "k,k->"),
    "aten::outer": product("outer", "n,m->nm"),
    "aten::ger": product("ger", "n,m->nm"),
    "aten::bilinear": bilinear,
    "aten::addmm": added("addmm", "nk,km->nm"),
    "aten::addmm_": added("addmm_", "nk,km->nm", True),
    "aten::addmv": added("addmv", "nk,k->n"),
    "aten::addmv_": added("addmv_", "nk,k->n", True),
    "aten::baddbmm": added("baddbmm", "bnk,bkm->bnm"),
    "aten::baddbmm_": added("baddbmm_", "bnk,bkm->bnm", True),
    "aten::addbmm": added("addbmm", "bnk,bkm->nm"),
    "aten::addbmm_": added("addbmm_", "bnk,bkm->nm", True),
    "aten::addr": added("addr", "n,m->nm"),
    "aten::addr_": added("addr_", "n,m->nm", True),
    "aten::matmul": matmul("matmul"),
    "aten::linalg_matmul": matmul("linalg_matmul"),
    "aten::inner": inner,
    "aten::tensordot": tensordot,
    "aten::kron": kron,
    "aten::linalg_multi_dot": multi_dot,
    "aten::linalg_cross": cross("linalg_cross"),
    "aten::cross": cross("cross"),
    "aten::cov": cov,
    "aten::corrcoef": corrcoef,
    "aten::einsum": einsum,
    "aten::linalg_inv": positive("linalg_inv"),
    "aten::inverse": positive("inverse"),
    "aten::linalg_inv_ex": positive("linalg_inv_ex", "r, i1"),
    "aten::linalg_det": matrix_function("linalg_det"),
    "aten::det": matrix_function("det"),
    "aten::logdet": positive("logdet"),
    "aten::linalg_slogdet": positive("linalg_slogdet", "r, i1"),
    "aten::slogdet": positive("slogdet", "r, i1"),
    "aten::linalg_cholesky": positive("linalg_cholesky"),
    "aten::cholesky": positive("cholesky"),
    "aten::linalg_cholesky_ex": positive("linalg_cholesky_ex", "r, i1"),
    "aten::linalg_eigh": positive("linalg_eigh", "r, i1", ("", ", 'U'")),
    "aten::linalg_eigvalsh": positive("linalg_eigvalsh"),
    "aten::linalg_qr": matrix_function(
        "linalg_qr", "q1, r1", False, ("", ", 'complete'", ", 'reduced'")
    ),
    "aten::linalg_svd": matrix_function("linalg_svd", "u1, s1, v1", False, ("", ", False")),
    "aten::linalg_svdvals": matrix_function("linalg_svdvals", "r", False),
    "aten::pinverse": matrix_function("pinverse", "r", False),
    "aten::linalg_matrix_power": power("linalg_matrix_power"),
    "aten::matrix_power": power("matrix_power"),
    "aten::cholesky_inverse": positive("cholesky_inverse"),
    "aten::linalg_matrix_exp": exponential("linalg_matrix_exp"),
    "aten::matrix_exp": exponential("matrix_exp"),
    "aten::linalg_householder_product": householder,
    "aten::linalg_solve_triangular": triangular(
        "linalg_solve_triangular", "{a}, {b}, upper=False, left={left}"
    ),
    "aten::cholesky_solve": triangular("cholesky_solve", "{b}, {a}"),
    "aten::linalg_solve": solve("linalg_solve"),
    "aten::linalg_solve_ex": solve("linalg_solve_ex", "r, i1"),
}
GENERATORS = {name: sure(make) for name, make in GENERATORS.items()}
