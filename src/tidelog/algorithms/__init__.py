"""The algorithms, one page each; `names.py` is the table of their names."""
