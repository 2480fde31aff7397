"""What the program is: tensors and modules as they are recorded, inspected and
traced. Knows nothing of budgets, and runs nothing of the user's but traces."""
