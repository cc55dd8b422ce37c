"""The only owner of what a run leaves on disk: its folder, metrics, checkpoints, weights, artifacts and results."""
