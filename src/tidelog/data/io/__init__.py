"""Logs in and out.

`readers` reads any source and converts logs, `storage` is the saved folder, `export` writes other formats; `inspect`
describes a log or a table, for which `infer_columns` proposes a mapping by the parts named `infer_*`.
"""
