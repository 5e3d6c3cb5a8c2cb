"""Logs in and out: readers, inspection, inferred columns, storage, export."""
