"""Rules of the operator."""

from scaled_gelu import Rules, scaled_gelu

import koila

koila.register(
    scaled_gelu, batch=0, forward=Rules.forward, saved=Rules.saved, backward=Rules.backward
)
