"""Ray Data lets an exported policy act on many Parquet files, on this machine or on a cluster, block by block.

    pip install "ray[data]"
    tidelog export runs/iql --out policy
    python examples/ray_data_act.py policy days actions

`days` is a file or a folder of Parquet files with the features of the log, `actions` a new folder of Parquet files with
all columns and the policy's actions. Each worker loads the policy once and acts with NumPy alone, in the declared way;
a policy that samples draws other actions each time. Without a cluster Ray is started for this program alone, out of
reach of other machines; on a cluster, all paths have to be shared by its nodes. Ray sends its calls as pickles; tidelog
reads none.
"""

import os
import sys
from pathlib import Path

os.environ |= {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0", "RAY_USAGE_STATS_ENABLED": "0"}

import numpy as np
import pandas as pd
import ray
from ray.data import ActorPoolStrategy, SaveMode

from tidelog import runtime

ROWS = 65_536  # of a batch


class Act:
    """A worker, which loads the policy once."""

    def __init__(self, path: str) -> None:
        self.policy = runtime.load(path)

    def __call__(self, rows: pd.DataFrame) -> pd.DataFrame:
        """The rows with their actions."""
        actions = np.asarray(self.policy(rows))
        return rows.assign(policy_action=actions if actions.ndim == 1 else list(actions))


if __name__ == "__main__":
    path, source, target = sys.argv[1:]
    policy = runtime.load(path)
    if not isinstance(policy, runtime.NumpyPolicy) or policy.is_recurrent:
        sys.exit(f"{path} ranks items or has a memory, but rows are read apart. fix: tidelog act")
    if "RAY_ADDRESS" not in os.environ:
        ray.init(include_dashboard=False, _node_ip_address="127.0.0.1", log_to_driver=False)
    rows = ray.data.read_parquet(source)
    workers, loaded = ActorPoolStrategy(min_size=1), (str(Path(path).absolute()),)
    acted = rows.map_batches(Act, fn_constructor_args=loaded, batch_format="pandas", batch_size=ROWS, compute=workers)
    acted.write_parquet(target, mode=SaveMode.ERROR)
    written = ray.data.read_parquet(target).count()
    print(f"{written:,} rows with their actions: {target}")
