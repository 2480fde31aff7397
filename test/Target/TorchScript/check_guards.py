"""Meets tiled programs with what they were not compiled for.

Usage: check_guards.py mlp UNTILED.pt TILED.pt
       check_guards.py two_inputs UNTILED.pt TILED.pt
       check_guards.py raise UNTILED.pt TILED.pt
       check_guards.py above UNTILED.pt TILED.pt
       check_guards.py squeezed UNTILED.pt TILED.pt
       check_guards.py spectrum UNTILED.pt TILED.pt
       check_guards.py lookup UNTILED.pt TILED.pt
       check_guards.py maybe UNTILED.pt TILED.pt
       check_guards.py maybe_raise UNTILED.pt TILED.pt
       check_guards.py reads UNTILED.pt TILED.pt
       check_guards.py lists UNTILED.pt TILED.pt

The tiled program must do what the untiled one does (the same result, or the
same exception) and say why it did not run tiled, in a warning that starts
with `koila:` and names the fact. `raise` expects programs of mlp compiled with
guard=raise, which raise instead; `above` expects a budget that was promised
up to a batch of 64. `reads` looks at how the tiled program reads its weights.
"""

import collections
import sys
import warnings

import torch

import equality


def outcome(program, inputs):
    """The result or the exception's last line, and koila's warnings."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        try:
            result = program(*inputs)
        except Exception as error:  # whatever the program raises
            lines = str(error).strip().splitlines()
            result = (type(error).__name__, lines[-1])
    texts = [str(warning.message) for warning in caught]
    return result, [text for text in texts if "koila:" in text]


def same(a, b):
    if isinstance(a, tuple) and isinstance(a[0], str):
        return a == b
    if isinstance(b, tuple) and isinstance(b[0], str):
        return False
    return all(
        x.dtype == y.dtype and x.requires_grad == y.requires_grad and torch.equal(x, y)
        for x, y in zip(equality.flatten(a), equality.flatten(b), strict=True)
    )


class Checker:
    def __init__(self, untiled, tiled):
        self.untiled, self.tiled = untiled, tiled
        self.failures = 0

    def fail(self, name, text):
        self.failures += 1
        print(f"{name}: FAILED: {text}")

    def tiles(self, name, *inputs, quietly=True):
        """Within what was promised: the right result, without a word."""
        expected, _ = outcome(self.untiled, inputs)
        result, said = outcome(self.tiled, inputs)
        if isinstance(result, tuple):
            self.fail(name, f"raised {result}")
        elif not torch.allclose(result, expected, atol=1e-5):
            self.fail(name, "a wrong result")
        elif said and quietly:
            self.fail(name, f"warned: {said}")
        else:
            print(f"{name}: right{', warned' if said else ''}")

    def falls_back(self, name, facts, *inputs):
        """Outside: as the untiled program, and a warning with the facts."""
        expected, _ = outcome(self.untiled, inputs)
        result, said = outcome(self.tiled, inputs)
        if not same(result, expected):
            self.fail(name, f"got {result}\n  instead of {expected}")
        elif not any(all(fact in text for fact in facts) for text in said):
            self.fail(name, f"no warning with {facts}, but {said}")
        else:
            print(f"{name}: as untiled; {said[0]}")

    def raises(self, name, facts, *inputs):
        result, _ = outcome(self.tiled, inputs)
        if not isinstance(result, tuple):
            self.fail(name, "did not raise")
        elif not all(fact in result[1] for fact in ["koila:", *facts]):
            self.fail(name, f"raised {result}, without {facts}")
        else:
            print(f"{name}: raises; {result[1]}")


def check_mlp(checker):
    torch.manual_seed(0)
    x = torch.randn(13, 64)
    with torch.no_grad():
        checker.tiles("control", x)
        checker.tiles("every second column", torch.randn(13, 128)[:, ::2], quietly=False)
        checker.falls_back("dtype", ["dtype is not float32"], x.double())
        checker.falls_back("integers", ["dtype is not float32"], torch.ones(13, 64).long())
        checker.falls_back("rank 3", ["dims is not 2"], torch.randn(2, 13, 64))
        checker.falls_back("rank 1", ["dims is not 2"], torch.randn(64))
        checker.falls_back("extent", ["dim 1 is not 64"], torch.randn(13, 63))
        with torch.autocast("cpu", torch.bfloat16):
            checker.falls_back("autocast", ["autocast is on"], x)
    with torch.inference_mode():
        checker.tiles("inference mode", x)

    checker.falls_back("grad mode", ["grad mode is on"], x)
    gradients = []
    for program in (checker.untiled, checker.tiled):
        program.zero_grad()
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            program(x).square().sum().backward()
        gradients.append([p.grad.clone() for p in program.parameters()])
    if not all(map(torch.equal, *gradients)):
        checker.fail("gradients", "differ from those of the untiled program")

    # Nothing requires grad: tiled although grad mode is on.
    for program in (checker.untiled, checker.tiled):
        for parameter in program.parameters():
            parameter.requires_grad_(False)
    checker.tiles("grad mode on, nothing requires it", x)
    checker.falls_back("input requires grad", ["grad mode is on"], x.clone().requires_grad_())

    with torch.no_grad():
        checker.untiled.train()
        checker.tiled.train()
        checker.falls_back("train()", ["in training mode"], x)
        checker.tiled.eval()
        checker.tiles("eval() again", x)


def check_two_inputs(checker):
    torch.manual_seed(0)
    x, y = torch.randn(13, 64), torch.randn(13, 32)
    with torch.no_grad():
        checker.tiles("control", x, y)
        checker.falls_back("partner shorter", ["'y'", "dim 0 is not B"], x, y[:5])
        checker.falls_back("partner longer", ["'y'", "dim 0 is not B"], x, torch.randn(16, 32))
        # Broadcasts in the untiled program.
        checker.falls_back("partner of one sample", ["'y'", "dim 0 is not B"], x, y[:1])
        checker.falls_back("first of one sample", ["dim 0 is not B"], x[:1], y)


def check_raise(checker):
    torch.manual_seed(0)
    x = torch.randn(13, 64)
    with torch.no_grad():
        checker.tiles("control", x)
        checker.raises("rank 3", ["dims is not 2"], torch.randn(2, 13, 64))
        checker.raises("extent", ["dim 1 is not 64"], torch.randn(13, 63))
        checker.raises("dtype", ["dtype is not float32"], x.double())


def check_above(checker):
    torch.manual_seed(0)
    with torch.no_grad():
        checker.tiles("at the limit", torch.randn(64, 64))
        x = torch.randn(100, 64)
        checker.tiles("above it", x, quietly=False)
        _, said = outcome(checker.tiled, [x])
        if len(said) != 1 or "above 64" not in said[0]:
            checker.fail("above it", f"no warning about 64, but {said}")


def check_squeezed(checker):
    torch.manual_seed(0)
    with torch.no_grad():
        for batch in (2, 7, 13):
            checker.tiles(f"batch {batch}", torch.randn(batch, 64))
        checker.falls_back("one sample", ["for a batch below 2"], torch.randn(1, 64))


def check_lookup(checker):
    """Integers in: nothing but the weights tells the type of the result."""
    torch.manual_seed(0)
    x = torch.randint(0, 20, (13, 5))
    with torch.no_grad():
        checker.tiles("control", x)
        torch.set_default_dtype(torch.float64)
        checker.falls_back("default dtype", ["default dtype is not float32"], x)
        torch.set_default_dtype(torch.float32)
        for program in (checker.untiled, checker.tiled):
            program.double()
        checker.falls_back("double()", ["weight", "dtype is not float32"], x)


def check_lists(checker):
    """Attributes that import took for what they are."""
    torch.manual_seed(0)
    x = torch.randn(13, 64)
    with torch.no_grad():
        checker.tiles("control", x)
        for name, value in (("scales", [0.5, 3.0]), ("doubled", [True, True])):
            before = getattr(checker.tiled, name)
            for program in (checker.untiled, checker.tiled):
                setattr(program, name, value)
            checker.falls_back(name, [name], x)
            for program in (checker.untiled, checker.tiled):
                setattr(program, name, before)


def check_spectrum(checker):
    torch.manual_seed(0)
    with torch.no_grad():
        checker.tiles("control", torch.randn(13, 64))
        expected, _ = outcome(checker.untiled, [torch.randn(0, 64)])
        result, said = outcome(checker.tiled, [torch.randn(0, 64)])
        if not isinstance(expected, tuple):
            checker.fail("no samples", "the untiled program does not raise")
        elif result != expected or said:
            checker.fail("no samples", f"{result}, {said} for {expected}")
        else:
            print(f"no samples: raises; {result[1]}")


def check_maybe(checker):
    torch.manual_seed(0)
    x, bias = torch.randn(13, 64), torch.randn(13, 32)
    with torch.no_grad():
        checker.tiles("control", x, bias)
        checker.falls_back("None", ["'bias': is None"], x, None)
        checker.falls_back("left out", ["'bias': is None"], x)
        checker.falls_back("one sample", ["'bias'", "dim 0 is not B"], x, bias[:1])
    # A None is asked for a gradient by nobody.
    checker.falls_back("grad mode", ["grad mode is on"], x, bias)


def check_maybe_raise(checker):
    torch.manual_seed(0)
    x, bias = torch.randn(13, 64), torch.randn(13, 32)
    with torch.no_grad():
        checker.tiles("control", x, bias)
        checker.raises("None", ["'bias': is None"], x, None)
    checker.falls_back("grad mode", ["grad mode is on"], x, bias)


def check_reads(checker):
    """LibTorch takes much for each value that is a module."""
    for method in (checker.tiled, checker.tiled.forward_guarded):
        graph = method.graph
        reads = collections.Counter(
            (node.input().debugName(), node.s("name"))
            for node in graph.findAllNodes("prim::GetAttr")
            if isinstance(node.output().type(), torch._C.ClassType)
        )
        if twice := [name for (_, name), count in reads.items() if count > 1]:
            checker.fail("modules that are read again", twice)
        print(f"modules that are read: {len(reads)}")
    # And makes a text of the whole file for each variable of a branch.
    graph = checker.tiled.graph
    everywhere = [
        node.s("name")
        for node in graph.findAllNodes("prim::GetAttr")
        if isinstance(node.output().type(), torch._C.TensorType)
    ]
    outside = [node.s("name") for node in graph.nodes() if node.kind() == "prim::GetAttr"]
    for name in everywhere:
        if name not in outside:
            checker.fail("a weight that a branch reads", name)
        else:
            outside.remove(name)
    print(f"weights that the guard reads: {len(everywhere)}")


def main():
    what, untiled, tiled = sys.argv[1:]
    torch._C._jit_set_profiling_mode(False)
    checker = Checker(torch.jit.load(untiled), torch.jit.load(tiled))
    {
        "mlp": check_mlp,
        "two_inputs": check_two_inputs,
        "raise": check_raise,
        "above": check_above,
        "squeezed": check_squeezed,
        "spectrum": check_spectrum,
        "lists": check_lists,
        "lookup": check_lookup,
        "maybe": check_maybe,
        "maybe_raise": check_maybe_raise,
        "reads": check_reads,
    }[what](checker)
    if checker.failures:
        sys.exit(f"{checker.failures} checks failed")


if __name__ == "__main__":
    main()
