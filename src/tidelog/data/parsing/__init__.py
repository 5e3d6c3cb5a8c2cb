"""Parsing into a `RawLog`; no row is dropped, every problem becomes a finding.

`column` parses one column of a table, `tables` a table and its mapping, `arrays` arrays in memory; `actions` decides
their kind; `missing` fills empty cells by rules.
"""
