"""Check a foreign ONNX file before onnxruntime sees it: only what tidelog's own exports hold is run.

A file with other operators could compute for ever (`Loop`, `If`, `Scan`), call code that a program has registered
(other domains), or read other files (external data). Fields and numbers are those of onnx.proto, in the wire format of
Protocol Buffers. A repeated field is checked at each place, so that it does not matter which one a reader takes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from typing import Any, NamedTuple

OPERATORS = frozenset({
    *("Add", "And", "ArgMax", "Cast", "Clip", "Concat", "ConstantOfShape", "Div", "Equal", "Exp", "Expand", "Gather"),
    *("GatherND", "Gemm", "Greater", "GreaterOrEqual", "Identity", "Less", "Log", "Loop", "MatMul", "Max", "Min"),
    *("Mul", "Not", "Or", "Pad", "Range", "ReduceMax", "ReduceMean", "ReduceMin", "ReduceSum", "ReduceSumSquare"),
    *("Reshape", "Shape", "Slice", "Sqrt", "Squeeze", "Sub", "Tanh", "TopK", "Transpose", "Unsqueeze", "Where"),
})  # fmt: skip  # each is in an export of the tests; a policy that needs another one fails its parity check at export
MOST_STEPS = 100_000  # of a loop over a history
INT64 = 7
# fields: of a model, a graph, a node, an attribute, a tensor, and of an entry with a name
GRAPH, OPSETS, TRAINING, FUNCTIONS = 7, 8, 20, 25
NODES, INITIALIZERS, INPUTS, SPARSE = 1, 5, 11, 15
NODE_INPUTS, NODE_OUTPUTS, OPERATOR, ATTRIBUTES, DOMAIN = 1, 2, 4, 5, 7
TENSOR, SUBGRAPH, TENSORS, SUBGRAPHS, SPARSE_TENSORS = 5, 6, 10, 11, (22, 23)
DIMS, DATA_TYPE, INT64_DATA, TENSOR_NAME, RAW, EXTERNAL, LOCATION = 1, 2, 7, 8, 9, 13, 14
VALUE_NAME = 1


class RefusedModel(ValueError):
    """The file holds what no export of tidelog holds; the message says what."""


class _Constant(NamedTuple):
    """A tensor of a graph, with its value if it is one whole number."""

    name: str
    number: int | None


def refuse_foreign(content: bytes) -> None:
    """Raise RefusedModel unless a file is one graph of known operators, with its data and loops of a fixed length."""
    graphs = []
    for number, value in _fields(memoryview(content)):
        if number in (TRAINING, FUNCTIONS):
            raise RefusedModel("functions or training steps of its own")
        if number == OPSETS:
            _check_domain(value, 1)
        if number == GRAPH:
            graphs.append(value)
    if len(graphs) != 1:
        raise RefusedModel(f"{len(graphs)} graphs")
    _check_graph(graphs[0], within=False)


def _check_graph(graph: memoryview, *, within: bool) -> None:
    nodes, constants, changeable = [], [], set[str]()
    for number, value in _fields(graph):
        if number == SPARSE:
            raise RefusedModel("sparse tensors")
        if number == INITIALIZERS:
            constants.append(_checked_tensor(value))
        elif number == INPUTS:
            changeable |= {_text(name) for field, name in _fields(value) if field == VALUE_NAME}
        elif number == NODES:
            nodes.append(value)
    repeated = {name for name, count in Counter(one.name for one in constants).items() if count > 1}
    lengths = {one.name: one.number for one in constants if one.name not in changeable | repeated}
    for node in nodes:
        _check_node(node, lengths, within)


def _check_node(node: memoryview, lengths: dict[str, int | None], within: bool) -> None:
    fields = list(_fields(node))
    operators = {_text(value) for number, value in fields if number == OPERATOR}
    _check_domain(node, DOMAIN)
    if not operators <= OPERATORS or len(operators) != 1:
        raise RefusedModel(f"the operator {', '.join(sorted(operators - OPERATORS) or sorted(operators))[:80]!r}")
    loops = operators == {"Loop"}
    if loops and within:
        raise RefusedModel("a loop within a loop")
    if loops:
        inputs = [_text(value) for number, value in fields if number == NODE_INPUTS]
        steps = lengths.get(inputs[0]) if inputs else None
        if steps is None or not 0 <= steps <= MOST_STEPS:
            length = "no fixed length" if steps is None else f"{steps:,} steps"
            raise RefusedModel(f"a loop of {length}, at most {MOST_STEPS:,} steps are allowed")
    for number, attribute in fields:
        for field, value in _fields(attribute) if number == ATTRIBUTES else ():
            if field in (TENSOR, TENSORS):
                _checked_tensor(value)
            elif field in (SUBGRAPHS, *SPARSE_TENSORS) or (field == SUBGRAPH and not loops):
                raise RefusedModel("a graph or a sparse tensor within an operator")
            elif field == SUBGRAPH:
                _check_graph(value, within=True)


def _checked_tensor(tensor: memoryview) -> _Constant:
    names, numbers, kinds, size = [], [], [], 1
    for number, value in _fields(tensor):
        if number in (EXTERNAL, LOCATION):
            raise RefusedModel("data in other files")
        if number == TENSOR_NAME:
            names.append(_text(value))
        elif number == DATA_TYPE:
            kinds.append(value)
        elif number == DIMS:
            size = 0 if isinstance(value, memoryview) else size * value  # several dimensions in one field: not a number
        elif number == RAW and isinstance(value, memoryview) and len(value) == 8:
            numbers.append(int.from_bytes(value, "little", signed=True))
        elif number in (RAW, INT64_DATA):
            numbers += [0, 0]
    plain = len(numbers) == 1 and kinds == [INT64] and size == 1
    return _Constant(names[-1] if names else "", numbers[0] if plain else None)


def _check_domain(entry: memoryview, field: int) -> None:
    for number, value in _fields(entry):
        if number == field and _text(value) not in ("", "ai.onnx"):
            raise RefusedModel(f"the operators of the domain {_text(value)[:80]!r}")


def _text(value: Any) -> str:
    if not isinstance(value, memoryview):
        raise RefusedModel("a damaged field")
    return bytes(value).decode("utf-8", "backslashreplace")


def _fields(message: Any) -> Iterator[tuple[int, Any]]:
    """The numbers and values of a message's fields: whole numbers, or bytes."""
    if not isinstance(message, memoryview):
        raise RefusedModel("a damaged field")
    at = 0
    while at < len(message):
        key, at = _integer(message, at)
        number, kind = key >> 3, key & 7
        if kind == 0:
            value, at = _integer(message, at)
            yield number, value
            continue
        size, at = _integer(message, at) if kind == 2 else ({1: 8, 5: 4}.get(kind, -1), at)
        if size < 0 or size > len(message) - at:
            raise RefusedModel("a damaged field")
        yield number, message[at : at + size]
        at += size


def _integer(message: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while at < len(message) and shift < 70:
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        shift += 7
        if byte < 128:
            return value & (2**64 - 1), at
    raise RefusedModel("a damaged field")
