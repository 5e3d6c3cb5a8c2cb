"""One rank of a training in two processes, or the same training over two devices of one process; for tests."""

import json
import os
import sys

from tidelog.training.processes import connect_processes

address, rank, *names = sys.argv[1:]
if rank != "alone":
    connect_processes(address, 2, int(rank), seconds=60)

from tests.training.shared_batches import results  # noqa: E402  (JAX must not have started)

os.dup2(2, 1) if rank != "alone" else None
print(json.dumps(results(tuple(names), devices={"members": 1, "batch": 2})), file=sys.stderr)
