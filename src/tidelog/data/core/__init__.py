"""The mapping, the order of rows, the raw log that every source produces, the checks and the report."""
