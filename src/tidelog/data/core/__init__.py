"""What every source and check shares.

`columns` is the mapping from columns to roles, `order` the order of rows, `raw` the raw log that every source produces,
`log_columns` the columns of a log and views of them, `npy` arrays in files, `registry` the checks, `report` their
results.
"""
