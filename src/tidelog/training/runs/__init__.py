"""A run and its folder: options, record, checkpoints, sinks, selection, evaluation, progress."""
