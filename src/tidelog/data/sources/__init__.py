"""Sources of logs: one small function per file format, registered under its endings."""

from __future__ import annotations

from tidelog.data.sources.files import SOURCES, Reader, table_of
from tidelog.data.sources.self_described import ARRAYS, ending_of

__all__ = ["ARRAYS", "SOURCES", "Reader", "ending_of", "table_of"]
