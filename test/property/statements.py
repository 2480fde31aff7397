"""Statements of random programs on tensors and integers."""

import re

from expressions import BASE, Expressions, Info, Var, broadcast, index_text
from program import NAME


class Statements(Expressions):
    def assign_new(self):
        """A new tensor."""
        text, info = self.value(self.pick_shape())
        if self.chance(0.5):
            self.pure.append((text, info))
        # A bare name makes an alias.
        return [self.tensor(text, info)]

    def assign_view(self):
        place = self.place()
        view = self.viewed(place, 2)
        self.pure.append((view[0], view[1]))
        line = self.tensor(view[0], view[1], "v")
        self.frames[-1][-1].foreign = place[2]
        return [line]

    def assign_unpacked(self):
        """`a, b = t.chunk(2, 1)`, `a, b, c, d = t.unbind(1)`."""
        found = self.place(
            lambda info: info.dtype == "f" and any(e in (2, 4, 6) for e in info.shape)
        )
        if not found:
            return []
        text, info, foreign = found
        dim = self.pick([d for d, e in enumerate(info.shape) if e in (2, 4, 6)])
        extent, shape = info.shape[dim], info.shape
        if self.chance(0.5) and extent < 6:
            parts = extent
            new = shape[:dim] + shape[dim + 1 :]
            call = f"{text}.unbind({dim})"
        else:
            parts = 2
            new = (*shape[:dim], extent // 2, *shape[dim + 1 :])
            call = self.pick(
                [f"{text}.chunk(2, {dim})", f"torch.split({text}, {extent // 2}, {dim})"]
            )
        if self.has("list") and self.chance(0.4):
            name = self.name("l")
            self.define(Var(name, "list", Info(new, "f", info.dense), parts, foreign=foreign))
            return [
                f"{name} = list({call})"
                if "unbind" in call and self.chance(0.3)
                else f"{name} = {call}"
            ]
        names = [self.name("v") for _ in range(parts)]
        for name in names:
            self.define(Var(name, "tensor", Info(new, "f", info.dense), foreign=foreign))
        return [f"{', '.join(names)} = {call}"]

    def reassign(self):
        """Another value for a variable: of a fresh tensor or an alias."""
        options = [
            var
            for var in self.vars("tensor")
            if not var.fixed and var.info.dtype == "f" and var.name != "x"
        ]
        if not options:
            return []
        var = self.pick(options)
        text, info = self.value(var.info.shape)
        if not info.dense and var.info.dense:
            text = f"{text}.clone()"
        return [f"{var.name} = {text}"]

    def repeat(self):
        """An expression that was computed before, for CSE."""
        known = {var.name for var in self.vars()} | {"torch", "self"}

        def in_scope(text):
            return all(
                name in known or not BASE.fullmatch(name) or (name.isalpha() and len(name) > 1)
                for name in NAME.findall(text)
            )

        options = [pair for pair in self.pure if in_scope(pair[0])]
        if not options:
            return []
        text, info = self.pick(options[-4:] if self.chance(0.5) else options)
        return [self.tensor(text, info, "r")]

    def write(self):
        """An operator that writes a tensor or a view of one."""
        found = self.place(write=True)
        if not found:
            return []
        text, info, _ = self.viewed(found, 2)
        if not info.dense:
            text, info, _ = found
        shape, rank = info.shape, len(info.shape)

        def operand():
            if self.chance(0.3):
                other = self.place(lambda i: i.dtype == "f" and broadcast(i.shape, shape) == shape)
                if other:
                    return other[0]
            return self.value(shape, 1)[0]

        self.used.add("write")
        forms = [
            "{}.add_({v})",
            "{}.add_({n})",
            "{}.sub_({v})",
            "{}.mul_({n})",
            "{}.copy_({v})",
            "{}.relu_()",
            "{}.neg_()",
            "{}.clamp_(-4., 4.)",
            "{}.fill_({n})",
            "{}.zero_()",
            "{}.masked_fill_({v} > {n}, {n})",
            "torch.relu_({})",
            "{}.add_({v}, alpha=2)",
            "{}.abs_()",
            "{}.add_({s})",
            "{}.add_({n}).mul_(0.5)",
            "{}.copy_({n2})",
            "{}.add_({}.flip(0))" if rank else "{}.add_(1.)",
            "torch.nn.functional.relu({}, inplace=True)",
            "{}.minimum({v}).add_(1.)",
            "torch.add({}, {v}, out={})",
        ]
        # `a += b` needs a name, an attribute or a subscript on the left.
        # Elements of tuples and lists that operators make cannot be assigned.
        part_of = any(
            text.startswith(f"{var.name}[") and text.count("[") == 1 for var in self.vars("tuple")
        )
        if not part_of and (BASE.match(text) or re.search(r"\w\[[^][()]*\]$", text)):
            forms += ["{} += {v}", "{} -= {n}", "{} *= {n}"] * 2
            if rank or text.endswith("]"):
                forms += ["{set} = {v}", "{set} = {n}"] * 2
        if rank:
            dim = self.random.randrange(rank)
            extent = shape[dim]
            at = index_text(rank, dim, self.index(extent))
            part = shape[:dim] + shape[dim + 1 :]
            sub = f"{text}[{at}]"
            given = self.value(part, 1)[0]
            forms += [
                f"{sub} = {given}",
                f"{sub} += {given}",
                f"{sub} = {self.number()}",
                f"{sub}.copy_({given})",
            ] * 2
            forms += [
                f"{text}[{text} > {self.number()}] = {self.number()}",
                f"{text}.cumsum_({dim})",
                f"{text}.index_fill_({dim}, torch.tensor([0]), 2.)",
            ]
            if dim == 0 and extent == "B":
                forms += [f"{text}.index_add_(0, p, {self.value(shape, 1)[0]})"] * 2
                forms += [f"{text}.index_copy_(0, p, {self.value(shape, 1)[0]})"]
            if dim == 0 and isinstance(extent, int) and extent >= 4:
                # idx has the batch as its only extent.
                source = self.value(("B", *shape[1:]), 1)[0]
                forms += [
                    f"{text}.index_put_((idx,), {source}, True)",
                    f"{text}.index_add_(0, idx, {source})",
                ] * 2
                forms += [f"{text}[idx] = {self.number()}"]
            if rank == 2 and extent in (4, 6) and dim == 1 and shape[0] == "B":
                forms += [
                    f"{text}.scatter_(1, idx.unsqueeze(1), {self.number()})",
                    f"{text}.scatter_add_(1, idx.unsqueeze(1), {self.value(('B', 1), 1)[0]})",
                    f"{text}.scatter_(1, (idx % {extent}).unsqueeze(1),"
                    f" {self.value(('B', 1), 1)[0]})",
                ] * 2
        form = self.pick(forms)
        subscript = text if text.endswith("]") else f"{text}[:]"
        for key, make in (
            ("{set}", lambda: subscript),
            ("{v}", operand),
            ("{n2}", self.number),
            ("{s}", self.scalar),
        ):
            while key in form:
                form = form.replace(key, make(), 1)
        while "{n}" in form:
            form = form.replace("{n}", self.number(), 1)
        line = form.replace("{}", text)
        if line.count("=") == 0 and self.chance(0.15):
            # What the operator returns is the tensor that it wrote.
            return [self.tensor(line, info, "w")]
        return [line]

    def gather(self):
        """Operators that read by an index tensor."""
        found = self.place(
            lambda info: (
                info.dtype == "f" and info.shape and (info.shape[0] == 4 or info.shape[0] == 6)
            )
        )
        if found:
            text, info, _ = found
            new = ("B", *info.shape[1:])
            call = self.pick(
                [
                    f"{text}[idx]",
                    f"{text}.index_select(0, idx)",
                    f"torch.index_select({text}, 0, idx + 0)",
                ]
            )
            self.pure.append((call, Info(new)))
            return [self.tensor(call, Info(new))]
        return []

    def ints(self):
        options = [var for var in self.vars("int") if not var.fixed]
        if options and self.chance(0.6):
            var = self.pick(options)
            return [
                self.pick(
                    [
                        f"{var.name} += {self.integer()}",
                        f"{var.name} += 1",
                        f"{var.name} = ({var.name} + {self.integer()}) % 7",
                        f"{var.name} = {var.name} * 2 % 5",
                    ]
                )
            ]
        text = self.pick(["0", "1", self.integer(), f"{self.integer()} + {self.integer()}"])
        name = self.name("k")
        self.define(Var(name, "int"))
        return [f"{name} = {text}"]
