"""Rules that forget the product."""

from scaled_gelu import Rules, scaled_gelu

import koila

koila.register(
    scaled_gelu,
    batch=0,
    forward=lambda trace, x, scale: None,
    saved=Rules.saved,
    backward=Rules.backward,
)
