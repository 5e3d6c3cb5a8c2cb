"""Validation of a log: errors, warnings, dependent episodes, and the export of faulty rows."""
