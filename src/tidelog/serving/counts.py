"""A server's counts so far, as text in Prometheus' exposition format."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

EDGES = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5)  # seconds


@dataclass
class Counts:
    """Requests by status, rows, and durations of answers."""

    answers: Counter[int] = field(default_factory=Counter)  # by status
    within: Counter[float] = field(default_factory=Counter)  # by edge, cumulative
    rows: int = 0
    seconds: float = 0.0
    under_way: int = 0

    def answered(self, status: int, seconds: float) -> None:
        """Count one answer."""
        self.answers[status] += 1
        self.seconds += seconds
        for edge in EDGES:
            self.within[edge] += seconds <= edge

    def text(self) -> str:
        """Return all counts as text."""
        total = sum(self.answers.values())
        lines = ["# TYPE tidelog_requests_total counter"]
        lines += [f'tidelog_requests_total{{status="{status}"}} {n}' for status, n in sorted(self.answers.items())]
        lines += ["# TYPE tidelog_rows_total counter", f"tidelog_rows_total {self.rows}"]
        lines += ["# TYPE tidelog_requests_under_way gauge", f"tidelog_requests_under_way {self.under_way}"]
        lines += ["# TYPE tidelog_request_seconds histogram"]
        lines += [f'tidelog_request_seconds_bucket{{le="{edge:g}"}} {self.within[edge]}' for edge in EDGES]
        lines += [f'tidelog_request_seconds_bucket{{le="+Inf"}} {total}']
        lines += [f"tidelog_request_seconds_sum {self.seconds:.6f}", f"tidelog_request_seconds_count {total}", ""]
        return "\n".join(lines)
