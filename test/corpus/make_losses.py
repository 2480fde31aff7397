"""Makes losses of programs, as training.py says, in a process apart.

Reads tasks from stdin, each a line [PROGRAM.pt, OUTPUT.pt, [SPEC...]] in JSON;
answers each with a line: null if OUTPUT has the loss, or why there is none.
"""

import json
import sys

import torch

import inputs
import make_programs


def leaves(value):
    if isinstance(value, torch.Tensor):
        return [value] if value.is_floating_point() else []
    if isinstance(value, dict):
        value = value.values()
    if isinstance(value, (list, tuple)) or hasattr(value, "__iter__"):
        return [leaf for part in value for leaf in leaves(part)]
    return []


class Loss(torch.nn.Module):
    def __init__(self, program):
        super().__init__()
        self.program = program

    def forward(self, *values):
        parts = [leaf.square().mean() for leaf in leaves(self.program(*values))]
        return torch.stack([part.float() for part in parts]).sum()


def make(path, output, specs):
    program = torch.jit.load(path)
    torch.manual_seed(0)
    values = inputs.make(specs, 3)
    loss = Loss(program).train(program.training)
    if not list(loss.parameters()):
        return "no weights"
    if not any(leaf.requires_grad for leaf in leaves(program(*values))):
        return "no gradient"
    torch.jit.trace(loss, values, check_trace=False).save(output)
    return None


def main():
    make_programs.prepare_libraries()
    for line in sys.stdin:
        try:
            answer = make(*json.loads(line))
        except Exception as error:
            # As Python ends with it.
            answer = f"{type(error).__name__}: {error}".strip().splitlines()[-1]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main()
