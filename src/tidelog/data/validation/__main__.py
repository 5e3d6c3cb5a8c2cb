"""Print every check as a Markdown table: `python -m tidelog.data.validation`."""

from tidelog.data.core.registry import as_table
from tidelog.data.validation import errors, warnings  # noqa: F401 (importing them registers every check)

print(as_table())  # noqa: T201
