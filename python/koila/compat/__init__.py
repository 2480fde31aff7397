"""The names of the tools that koila succeeds, each over what koila has.

``koila.compat.toma``
    Runs functions with smaller sizes until they fit.
``koila.compat.pytorch_memlab``
    Memory line by line and tensor by tensor, and moved out of the way.
``koila.compat.infinitybatch``
    Trains with batches that need not fit.

Nothing here is imported with koila itself.
"""
