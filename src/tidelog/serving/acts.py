"""Requests and answers of `POST /act`."""

from __future__ import annotations

from typing import Any

import numpy as np

from tidelog.runtime.policy import Policy
from tidelog.serving.bodies import UNFIT, ParsedRequest, Refused, pictures, read_body
from tidelog.types import Discrete

FEW = 8  # rows


class ActEndpoint:
    """Observations in, actions out; at most `most` rows."""

    path = "/act"

    def __init__(self, policy: Policy, most: int) -> None:
        self.policy, self._most = policy, most

    def read(self, text: bytes) -> ParsedRequest:
        """Return the request of a body; Refused for an invalid one."""
        return read_body(text, self.policy, self._most)

    def quick(self, asked: ParsedRequest) -> bool:
        """Return whether the computation is faster than a thread switch."""
        return asked.rows <= FEW

    def compute(self, asked: ParsedRequest) -> dict[str, Any]:
        """Return the answer to a request: actions by number or value, and by name where names exist."""
        observation, space = pictures(asked, self.policy.spec), self.policy.spec.action
        answer: dict[str, Any] = {}
        with np.errstate(all="ignore"):  # values that are not finite are refused below
            if asked.seed is None:
                answer["action"] = self.policy(observation, asked.mask, asked.memory)
            else:
                drawn = self.policy.sample_with_propensity(observation, asked.seed, asked.mask, asked.memory)
                answer["action"], answer["propensity"] = drawn
        if isinstance(space, Discrete) and space.names:
            answer["name"] = np.asarray(space.names)[answer["action"]]
        if asked.memory is not None:
            answer["memory"] = asked.memory.carry
        for name, values in answer.items():
            if name != "name" and values is not None and not np.isfinite(values).all():
                raise Refused(
                    UNFIT, f"the {name} is not finite, the observation is too large. fix: send smaller values"
                )
        plain = {name: None if values is None else values.tolist() for name, values in answer.items()}
        if asked.single:
            return {name: None if values is None else values[0] for name, values in plain.items()}
        return {_PLURAL[name]: values for name, values in plain.items()}


_PLURAL = {"action": "actions", "name": "names", "propensity": "propensities", "memory": "memories"}
