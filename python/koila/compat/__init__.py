"""The names of the tools that koila succeeds, each over what koila has.

``koila.compat.toma``
    Runs functions with smaller sizes until they fit.

Nothing here is imported with koila itself.
"""
