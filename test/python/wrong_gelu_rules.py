"""Rules that forget the product."""

import koila
from scaled_gelu import Rules, scaled_gelu

koila.register(
    scaled_gelu,
    batch=0,
    forward=lambda trace, x, scale: None,
    saved=Rules.saved,
    backward=Rules.backward,
)
