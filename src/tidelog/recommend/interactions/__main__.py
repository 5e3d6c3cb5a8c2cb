"""Print every check of interactions as a Markdown table: `python -m tidelog.recommend.interactions`."""

from tidelog.data.core.registry import as_table
from tidelog.recommend.interactions.checks import INTERACTION_CHECKS

print(as_table(INTERACTION_CHECKS))  # noqa: T201
