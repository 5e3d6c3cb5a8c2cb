"""Validation of a log: one function per check.

`errors` make a log unusable, `warnings` (and notes) do not; `clusters` and `duplicates` find dependent episodes and
copies of rows; `quarantine` writes faulty rows to a file.
"""
