"""A run from start to end: the recipe resolved once, batches, the loop, the optimiser."""
