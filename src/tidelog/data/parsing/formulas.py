"""Text that a spreadsheet would compute: what begins with = + - @ TAB or CR and is no number.

Source: OWASP, CSV Injection.
"""

from __future__ import annotations

import re

FORMULA = r"^[=+\-@\t\r]"
NUMBER = r"^[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?$|^[+-]?([iI]nf|[iI]nfinity|[nN]a[nN])$"


def harmless(text: str) -> str:
    """Return the text, after an apostrophe if a spreadsheet would compute it."""
    return f"'{text}" if re.search(FORMULA, text) and not re.search(NUMBER, text) else text
