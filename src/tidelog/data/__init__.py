"""Logs of decisions: sources, validation and the canonical log. Does not import JAX.

`log` is the canonical log, on top of everything else; `statistics`, `scaling` and `overlap` compute with it. `core`
holds columns, the order of rows and the registry of checks; `sources` reads files, `parsing` turns their columns into
numbers, `validation` checks them, `io` reads any source, inspects, stores and exports.
"""
