"""Training of a run: resolving the recipe, batches, the training loop, the optimiser."""
