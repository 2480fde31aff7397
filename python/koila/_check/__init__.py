"""``koila check-op``: the models of an operator against runs of it."""
