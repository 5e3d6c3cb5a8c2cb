"""Columns, rows into episodes, what every source produces, the list of checks and the report."""
