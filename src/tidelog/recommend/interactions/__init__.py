"""Interaction logs: who chose which item, when, and with what reward. Does not import JAX.

`readers` reads a table or reopens a log; `tables` parses columns by their roles, `checks` validates them; `log` is the
canonical log with its splits, statistics and files; `held_out` are test cases for rankers.
"""
