"""Scripted control flow that tiles run by themselves, and such that they
cannot.

What decides is an argument without the batch, so that neither import nor data
of the samples decide it.
"""

from hazard_registry import ROWS, hazard, hazard_that_adds_up, safe

SCALE = "float32[4]"

# ---------------------------------------------------------------------------
# Each tile by itself


@safe(ROWS, SCALE, scripted=True, decided=True)
def branch_on_an_argument(self, x, scale):
    h = self.encode(x)
    if bool(scale[0] > scale[1]):
        h = h * scale[0]
    else:
        h = (h - h.mean(1, keepdim=True)).sin()
    return h + 1


@safe(ROWS, SCALE, scripted=True, decided=True)
def branch_in_a_branch(self, x, scale):
    h = self.encode(x)
    if bool(scale.sum() > 0):
        if bool(scale[2] > 0):
            h = h.cumsum(1)
        h = h * 3
    return h.softmax(1), x


@safe(ROWS, SCALE, scripted=True, decided=True)
def steps_of_an_argument(self, x, scale):
    h = self.encode(x)
    for step in range(2 + int(scale.abs().sum())):
        h = h + self.encode(x) * scale[step % 4]
    return h


@safe(ROWS, SCALE, scripted=True, decided=True)
def until_a_number_is_small(self, x, scale):
    h = self.encode(x)
    left = float(scale.abs().sum()) + 1
    while left > 0.5:
        h = h.sin() + x[:, :6]
        left = left / 2
    return h


@safe(ROWS, SCALE, scripted=True, decided=True)
def sizes_in_a_branch(self, x, scale):
    """The number of samples is asked for inside, and only to keep it."""
    h = self.encode(x)
    if bool(scale[0] > 0):
        h = h.view(h.size(0), 2, 3).transpose(1, 2).reshape(h.size(0), 6)
    return h


# ---------------------------------------------------------------------------
# Only all of them together


@hazard(ROWS, SCALE, barrier="softmax over dim 0", scripted=True, decided=True)
def branch_that_mixes(self, x, scale):
    h = self.encode(x)
    if bool(scale.abs().sum() >= 0):
        h = h.softmax(0)
    return h * 2


@hazard(ROWS, SCALE, barrier="cumsum", scripted=True, decided=True)
def steps_that_mix(self, x, scale):
    h = self.encode(x)
    for step in range(1 + int(scale.abs().sum() >= 0)):
        h = h.cumsum(0) * 0.5
    return h


@hazard(ROWS, barrier="number of samples", scripted=True)
def branch_on_the_number(self, x):
    h = self.encode(x)
    if x.size(0) > 4:
        h = h * 2
    return h + 1


@hazard(ROWS, barrier="number of samples", scripted=True)
def steps_of_the_number(self, x):
    h = self.encode(x)
    for step in range(x.size(0)):
        h = h * 0.9 + 0.1
    return h


@hazard(ROWS, barrier="number of samples|mixes|control flow", scripted=True, decided=True)
def branch_on_a_mean_inside(self, x):
    h = self.encode(x)
    for step in range(2):
        if bool(h.mean() > 0):
            h = h - h.mean()
        h = h * 2 + 0.3
    return h


@hazard_that_adds_up(ROWS, SCALE, scripted=True, decided=True)
def mean_decided_by_an_argument(self, x, scale):
    """The mean of all of them is taken where an argument says so."""
    h = self.encode(x)
    mean = h.mean(0)
    if bool(scale.abs().sum() >= 0):
        h = h - mean
    return h
