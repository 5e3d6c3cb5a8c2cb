"""Sweeps: many trials over one log, each an ordinary run folder, trained by a pool of processes, compared in one table.

`plan` makes lists of settings and the file that freezes them; `sweep` is what users call, and the page; `driver` gives
attempts to a pool of `tidelog.parallel` and decides the rungs of halving; `job` and `attempt` are what a process does.
The run folders are the truth: a pool that is lost costs nothing but time.
"""
