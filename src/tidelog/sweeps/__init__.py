"""Sweeps: many trials over one log, each an ordinary run folder, trained by a pool of processes, compared in one table.

`plan` makes lists of settings and the files; `sweep` is what users call, the driver, and the page; `job` is what a
process runs first. The run folders are the truth: a pool that is lost costs nothing but time.
"""
