"""Where collectors run: what `here.py` and `ray.py` have in common."""

from __future__ import annotations

from typing import NamedTuple, Protocol


class Lost(NamedTuple):
    """A collector whose process has ended, or cannot be reached."""

    how: str  # for people, such as "killed by signal 9"


class Transport(Protocol):
    """The processes of all blocks."""

    def cores(self) -> int:
        """The number of processor cores."""

    def start(self, block: int) -> None:
        """Start the process of a block, in place of an earlier one; returns at once."""

    def running(self, block: int) -> bool:
        """Whether the process of a block was started, and not found lost."""

    def send(self, block: int, message: bytes) -> None:
        """Send a request to the process of a block; `wait` reports one that is lost."""

    def wait(self, seconds: float) -> list[tuple[int, bytes | Lost]]:
        """Return the replies that have come, by block, after at most some seconds."""

    def stop(self, block: int) -> None:
        """End the process of a block by force."""

    def close(self) -> None:
        """End all processes."""
