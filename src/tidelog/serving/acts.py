"""What `POST /act` takes and answers."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.runtime.policy import Policy
from tidelog.serving.bodies import UNFIT, Asked, Refused, pictures, read_body
from tidelog.types import Discrete

FEW = 8  # rows


class Acts:
    """Observations in, actions out; at most `most` rows."""

    path = "/act"

    def __init__(self, policy: Policy, most: int) -> None:
        self.policy, self._most = policy, most

    def read(self, text: bytes) -> Asked:
        """What a body asks for; Refused where it does not fit."""
        return read_body(text, self.policy, self._most)

    def quick(self, asked: Asked) -> bool:
        """Whether the answer is computed faster than a thread is asked."""
        return asked.rows <= FEW

    def compute(self, asked: Asked) -> dict[str, Any]:
        """The answer to a request: actions by their number or value, and by their name where they have one."""
        observation, space = pictures(asked, self.policy.spec), self.policy.spec.action
        found: dict[str, Any] = {}
        with np.errstate(all="ignore"):  # what is not finite is refused below
            if asked.seed is None:
                found["action"] = self.policy(observation, asked.mask, asked.memory)
            else:
                drawn = self.policy.sample_with_propensity(observation, asked.seed, asked.mask, asked.memory)
                found["action"], found["propensity"] = drawn
        if isinstance(space, Discrete) and space.names:
            found["name"] = np.asarray(space.names)[found["action"]]
        if asked.memory is not None:
            found["memory"] = asked.memory.carry
        for name, values in found.items():
            if name != "name" and values is not None and not np.isfinite(values).all():
                raise Refused(UNFIT, f"the {name} is no finite number: the observation is beyond what can be computed")
        plain = {name: None if values is None else values.tolist() for name, values in found.items()}
        if asked.single:
            return {name: None if values is None else values[0] for name, values in plain.items()}
        return {_PLURAL[name]: values for name, values in plain.items()}


_PLURAL = {"action": "actions", "name": "names", "propensity": "propensities", "memory": "memories"}
