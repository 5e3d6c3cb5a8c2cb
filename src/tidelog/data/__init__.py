"""Logs of decisions: sources, validation and the canonical log. Does not import JAX.

From low to high: `columns` is the mapping, `raw` holds columns, findings and reports, `log_columns` those of a valid
log, `dependence` has the statistics of dependent rows and columns, `parse` turns columns into numbers, `checks`
validates, `storage` and `export` write, `log` is the canonical log, `formats` reads files, `read` any source, `inspect`
proposes a mapping.
"""
