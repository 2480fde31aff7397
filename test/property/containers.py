"""Statements of random programs on lists, tuples, dicts and state."""

from collections.abc import Callable

from expressions import Info, Var
from program import Block
from statements import Statements


class Containers(Statements):
    # Of the whole generator.
    block: Callable[[int], list]
    inner: Callable[[int], list]

    def lists(self):
        options = self.vars("list")
        if not options or self.chance(0.3):
            info = Info(self.pick_shape())
            name = self.name("l")
            values = [self.value(info.shape, 1) for _ in range(self.random.randrange(3))]
            dense = all(value[1].dense for value in values)
            if values:
                line = f"{name} = [{', '.join(v[0] for v in values)}]"
            elif self.chance(0.5) and (found := self.place(lambda i: i == info)):
                # The element type comes from the comprehension.
                line = (
                    f"{name} = [{found[0]} * {self.number()} for _ in range({self.pick([2, 3])})]"
                )
                values = [0, 0]
            else:
                line = f"{name}: List[Tensor] = []"
            self.define(Var(name, "list", Info(info.shape, "f", dense), len(values)))
            return [line]
        var = self.pick(options)
        name, shape = var.name, var.info.shape

        def element():
            text, info = self.value(shape, 1)
            if var.info.dense and not info.dense:
                text += ".clone()"
            return text

        def more():
            if var.depth == len(self.frames):
                var.least += 1

        if var.least == 0 or self.chance(0.35):
            text = element()
            form = self.pick(
                [f"{name}.append({text})"] * 4
                + [f"{name}.insert(0, {text})", f"{name}.extend([{text}])", f"{name} += [{text}]"]
            )
            more()
            return [form]
        forms = [f"{name}[0] = {element()}", f"{name}[-1] = {element()}", f"{name}.reverse()"]
        if (
            self.has("writes")
            and var.info.dense
            and (not var.foreign or self.has("foreign_writes"))
        ):
            forms += [
                f"{name}[0].add_({self.number()})",
                f"{name}[-1].mul_({self.number()})",
                f"{name}[{self.integer()} % len({name})].add_({element()})",
                f"{name}[0] += {self.number()}",
            ] * 2
        roll = self.random.random()
        if roll < 0.25:
            new = Info(shape)
            text = self.pick(
                [
                    f"torch.stack({name}).sum(0)",
                    f"torch.stack({name}).amax(0)",
                    f"{name}[{self.integer()} % len({name})]",
                    f"{name}[-1] + {name}[0]",
                ]
            )
            return [self.tensor(text, new)]
        if roll < 0.35:
            other = self.name("l")
            form = self.pick(
                [
                    f"{name}",
                    f"{name}[:1]",
                    f"{name} + {name}",
                    f"[e * 0.5 for e in {name}]",
                    f"list({name})",
                ]
            )
            least = 1 if form.endswith("[:1]") else var.least
            self.define(Var(other, "list", var.info, least, foreign=var.foreign))
            return [f"{other} = {form}"]
        if roll < 0.45:
            taken = f"{name}.pop({self.pick(['', '0'])})"
            inner = [taken]
            if self.has("writes") and var.info.dense and not var.foreign:
                popped = self.name("v")
                inner = [f"{popped} = {taken}", f"{popped}.add_(1.)"]
            return [Block([(f"if len({name}) > {var.least + 1}:", inner)])]
        return [self.pick(forms)]

    def tuples(self):
        options = self.vars("tuple")
        if options and self.chance(0.5):
            var = self.pick(options)
            names = []
            for info in var.parts:
                names.append(self.name("v"))
                self.define(Var(names[-1], "tensor", info, foreign=var.foreign))
            return [f"{', '.join(names)} = {var.name}"]
        values = [self.value(self.pick_shape(), 1) for _ in range(self.pick([2, 2, 3]))]
        name = self.name("p")
        self.define(Var(name, "tuple", parts=tuple(value[1] for value in values)))
        return [f"{name} = ({', '.join(value[0] for value in values)})"]

    def dicts(self):
        options = self.vars("dict")
        if not options or self.chance(0.3):
            shape = self.pick_shape()
            name = self.name("d")
            keys = self.pick([("a",), ("a", "b")])
            values = [self.value(shape, 1) for _ in keys]
            dense = all(value[1].dense for value in values)
            self.define(Var(name, "dict", Info(shape, "f", dense), 0, keys))
            pairs = ", ".join(
                f"'{key}': {value[0]}" for key, value in zip(keys, values, strict=True)
            )
            return [f"{name} = {{{pairs}}}"]
        var = self.pick(options)
        name, key = var.name, self.pick(var.keys)
        text, info = self.value(var.info.shape, 1)
        if var.info.dense and not info.dense:
            text += ".clone()"
        forms = [f"{name}['{key}'] = {text}", f"{name}['{self.pick('abc')}'] = {text}"]
        if self.has("writes") and var.info.dense:
            forms += [f"{name}['{key}'].add_({self.number()})", f"{name}['{key}'] += {text}"] * 2
        if self.chance(0.3):
            return [self.tensor(f"{name}['{key}']", var.info, "v")]
        if self.chance(0.25):
            line = self.pick(["sum", "write"])
            value = self.name("e")
            body = (
                [f"{value}.add_(1.)"]
                if line == "write" and self.has("writes") and var.info.dense
                else [f"{name}['{key}'] = {name}['{key}'] + {value}"]
            )
            return [
                Block(
                    [
                        (
                            self.pick(
                                [
                                    f"for {value} in {name}.values():",
                                    f"for {self.name('s')}, {value} in {name}.items():",
                                ]
                            ),
                            body,
                        )
                    ]
                )
            ]
        return [self.pick(forms)]

    def states(self):
        options = [
            ["self.counter += 1"],
            [f"self.counter = (self.counter + {self.integer()}) % 9"],
            ["self.flag = not self.flag"],
            [f"self.flag = {self.condition()}"],
        ]
        value = self.value((4, 6), 1)
        text = value[0] if value[1].dense else f"{value[0]}.clone()"
        if self.has("foreign_writes"):
            options += [
                [f"self.buf.add_({value[0]})"],
                [f"self.buf[{self.index(4)}] = {self.number()}"],
                [f"self.row.add_({self.number()})"],
                [f"self.sub.mem.mul_({self.number()})"],
                [f"self.buf.copy_({value[0]})"],
                [f"self.buf = {text}"],
                [f"self.hist = {self.value((6,), 1)[0]}.clone()"],
                ["self.items.append(self.buf.clone())"],
                [f"self.items.append({text})"],
                ["self.items[0].add_(1.)"],
                [self.tensor("self.items[-1]", Info((4, 6)), "v")],
            ]
            if not options[-1][0].startswith("v"):
                options.pop()
        options.append([self.tensor("self.hist", Info((6,)), "v")])
        chosen = self.pick(options)
        # Only what was chosen is defined.
        for lines in options:
            if lines is not chosen and lines[0].split(" = ")[0].startswith("v"):
                self.forget(lines[0].split(" = ")[0])
        for var in self.frames[-1]:
            if var.name == chosen[0].split(" = ")[0]:
                var.foreign = True
        return chosen

    def forget(self, name):
        self.frames[-1] = [var for var in self.frames[-1] if var.name != name]

    def optionals(self):
        options = self.vars("optional")
        if not options or self.chance(0.2):
            info = Info(self.pick_shape())
            name = self.name("o")
            text = self.value(info.shape, 1)[0]
            self.define(Var(name, "optional", info))
            lines = [f"{name}: Optional[Tensor] = None"]
            return [*lines, Block([(f"if {self.condition()}:", [f"{name} = {text}"])])]
        var = self.pick(options)
        held = self.name("v")
        self.frames.append([])
        self.define(Var(held, "tensor", var.info, foreign=var.foreign))
        inner = [f"{held} = {var.name}", *self.block(2)]
        self.frames.pop()
        test = f"if {var.name} is not None:"
        if self.chance(0.4):
            return [Block([(test, inner), ("else:", self.inner(1))])]
        return [Block([(test, inner)])]

    def calls(self):
        found = self.place(lambda info: info.dtype == "f" and len(info.shape) > 0, write=True)
        if not found:
            return []
        text, info, foreign = found
        shape = info.shape
        options = [(f"self.part({text})", Info(shape[1:]), foreign)]
        if self.has("writes"):
            options += [(f"self.touch({text}, {self.number()})", Info(shape), foreign)] * 2
        if self.has("state") and self.has("foreign_writes") and (shape[-1] == 6):
            options += [(f"self.sub({text})", Info(shape), False)] * 2
        call, new, seen = self.pick(options)
        line = self.tensor(call, new, "c")
        self.frames[-1][-1].foreign = seen
        return [line]
