"""Idle connections are closed to keep the server open for others."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def patient_for(seconds: float) -> type[Any]:
    """Return uvicorn's protocol that closes a connection after this time without the headers of a request."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._answered, self._was_idle = self.cycle, True
            self._look = self.loop.call_later(seconds, self._looked)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def _looked(self) -> None:
            idle = self.cycle is None or self.cycle.response_complete
            if idle and self._was_idle and self.cycle is self._answered:
                self.transport.close()
                return
            self._answered, self._was_idle = self.cycle, idle
            self._look = self.loop.call_later(seconds, self._looked)

    return Patient
