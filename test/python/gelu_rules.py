"""Rules of the operator."""

import koila
from scaled_gelu import Rules, scaled_gelu

koila.register(
    scaled_gelu, batch=0, forward=Rules.forward, saved=Rules.saved, backward=Rules.backward
)
