"""A notebook: cells define a model and its function, compile it, change them and run again."""

# points: 1
# catches: silent, wrong, keeps

import linecache

MODEL = """
import torch
from torch import nn

strength = 1.0

def mix(x):
    return torch.tanh(x) * strength

class Mixer(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(32, 512)
        self.second = nn.Linear(512, 6)

    def forward(self, x):
        return self.second(mix(self.first(x)))

torch.manual_seed(0)
model = Mixer().eval()
x = torch.randn(1024, 32)
"""
COMPILE = """
small = koila.compile(model, x, budget=BUDGET)
"""
ANSWER = """
with torch.no_grad(), app.within(BUDGET):
    answers.append(small(x))
"""
OTHER_STRENGTH = """
strength = 0.5
"""
OTHER_MIX = """
def mix(x):
    return torch.relu(x) * strength
"""


names = {"__name__": "__main__"}  # a notebook's stay until it is closed


def application(koila, app):
    names.update(koila=koila, app=app, BUDGET=512 << 10, answers=[])

    def run(cell, count=[0]):  # noqa: B006 (counts)
        count[0] += 1
        file = f"<ipython-input-{count[0]}>"
        linecache.cache[file] = (len(cell), None, cell.splitlines(keepends=True), file)
        exec(compile(cell, file, "exec"), names)

    for cell in (MODEL, COMPILE, ANSWER, OTHER_STRENGTH, ANSWER, OTHER_MIX, ANSWER):
        run(cell)
    # From the top again: another class of the same name.
    for cell in (MODEL, COMPILE, ANSWER, ANSWER):
        run(cell)
    return {"answers": names["answers"]}
