"""The one loop and what stands around it: stores, checkpoints, metrics, progress. None of it names an algorithm."""
