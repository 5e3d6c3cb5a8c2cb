"""Connections that bring no request are closed, so that silent ones do not keep others out."""

from __future__ import annotations

from typing import Any

from uvicorn.protocols.http.auto import AutoHTTPProtocol


def patient_for(seconds: float) -> type[Any]:
    """uvicorn's protocol, which closes a connection that waits so long for the headers of its next request."""

    class Patient(AutoHTTPProtocol):  # type: ignore[misc,valid-type]
        def connection_made(self, transport: Any) -> None:
            super().connection_made(transport)
            self._answered, self._rested = self.cycle, True
            self._look = self.loop.call_later(seconds, self._looked)

        def connection_lost(self, exc: Exception | None) -> None:
            self._look.cancel()
            super().connection_lost(exc)

        def _looked(self) -> None:
            resting = self.cycle is None or self.cycle.response_complete
            if resting and self._rested and self.cycle is self._answered:
                self.transport.close()
                return
            self._answered, self._rested = self.cycle, resting
            self._look = self.loop.call_later(seconds, self._looked)

    return Patient
