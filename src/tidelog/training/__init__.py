"""The training loop with its stores, checkpoints, metrics and progress; no module here names an algorithm."""
