"""Sweeps: many trials over one log, each an ordinary run folder, trained by an engine and compared in one table.

`trials` makes lists of settings; `plan` is the file that freezes them; `sweep` is what users call; `driver` submits
jobs to an engine of `engines/` and decides the rungs of halving; `worker` and `attempt` are what a job runs. The run
folders are the truth: an engine that is lost costs nothing but time.
"""
