"""Text from logs, files and names, made safe to print: control characters are shown, not obeyed."""

from __future__ import annotations

import re

CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028\u2029\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def printable(text: str) -> str:
    r"""Return the text with escapes such as `\u001b` for control characters and for marks that turn the direction.

    Bytes of a file name that are no UTF-8, which Python has as single surrogates, are escaped, too.
    JSON stays JSON of the same values.
    """
    return CONTROL.sub(lambda found: f"\\u{ord(found[0]):04x}", text)
