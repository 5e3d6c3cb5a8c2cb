"""A foreign ONNX file is checked before it is run: no loop without a fixed end, no unknown operator, no other file."""

import numpy as np
import pytest

from tests.runtime.cases import CASES, LISTS, ONNX, WITHOUT, listing, policy
from tidelog import CheckpointError
from tidelog.runtime.artefact_files import WEIGHTS, Saved, write
from tidelog.runtime.onnx_guard import OPERATORS, RefusedModel, refuse_foreign
from tidelog.runtime.session import load_onnx

pytestmark = pytest.mark.skipif(not ONNX, reason=WITHOUT)


def graph_of(*nodes, inputs=(), constants=()):
    from onnx import TensorProto, helper, numpy_helper

    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, None) for name in inputs]
    tensors = [numpy_helper.from_array(value, name) for name, value in constants]
    return helper.make_graph(list(nodes), "g", values, [], tensors)


def model_of(graph, *domains):
    from onnx import helper

    return helper.make_model(graph, opset_imports=[helper.make_opsetid(one, 21) for one in ("", *domains)])


def loop(steps, *body, inputs=()):
    """A loop of a number of steps, whose length may be replaced by an input."""
    from onnx import helper

    inner = graph_of(*(body or [helper.make_node("Add", ["x", "x"], ["y"])]))
    node = helper.make_node("Loop", ["steps", "more"], ["z"], body=inner)
    return graph_of(node, inputs=inputs, constants=[("steps", np.asarray(steps))])


def hostile():
    """What the error says, and the model."""
    import onnx
    from onnx import helper

    node = helper.make_node
    branches = {"then_branch": graph_of(), "else_branch": graph_of()}
    external = model_of(graph_of(constants=[("w", np.zeros(9, np.float32))]))
    external.graph.initializer[0].data_location = onnx.TensorProto.EXTERNAL
    twice = loop(3)
    twice.initializer.append(onnx.numpy_helper.from_array(np.asarray(2**62), "steps"))
    typed = loop(3)
    typed.initializer[0].int64_data.append(2**62)
    function = model_of(graph_of())
    function.functions.append(helper.make_function("d", "f", [], [], [], [helper.make_opsetid("", 21)]))
    sparse = model_of(graph_of())
    sparse.graph.sparse_initializer.add()
    hidden = node("Add", ["x", "x"], ["y"])
    hidden.attribute.append(helper.make_attribute("body", graph_of(node("Foreign", [], []))))
    return [
        ("a loop of 4,611,686,018,427,387,904 steps", model_of(loop(2**62))),
        ("a loop of -1 steps", model_of(loop(-1))),
        ("a loop of no fixed length", model_of(loop(3, inputs=["steps"]))),
        ("a loop of no fixed length", model_of(twice)),
        ("a loop of no fixed length", model_of(typed)),
        ("a loop of no fixed length", model_of(loop([3, 3]))),
        ("a loop of no fixed length", model_of(graph_of(node("Loop", ["", "more"], ["z"], body=graph_of())))),
        ("a loop within a loop", model_of(loop(3, loop(3).node[0]))),
        ("the operator 'Foreign'", model_of(loop(3, node("Foreign", [], [])))),
        ("the operator 'If'", model_of(graph_of(node("If", ["c"], ["y"], **branches)))),
        ("the operator 'Scan'", model_of(graph_of(node("Scan", ["c"], ["y"], body=graph_of(), num_scan_inputs=1)))),
        ("the domain 'com.microsoft'", model_of(graph_of(node("Add", [], [], domain="com.microsoft")))),
        ("the operators of the domain 'other'", model_of(graph_of(), "other")),
        ("data in other files", external),
        ("functions or training steps", function),
        ("sparse tensors", sparse),
        ("a graph or a sparse tensor within an operator", model_of(graph_of(hidden))),
    ]  # fmt: skip


def test_what_no_export_holds_is_refused():
    refuse_foreign(model_of(loop(3)).SerializeToString())
    for message, model in hostile():
        with pytest.raises(RefusedModel, match=message):
            refuse_foreign(model.SerializeToString())


def test_a_second_graph_is_not_overlooked():
    """Readers of Protocol Buffers merge what is repeated."""
    content = model_of(loop(3)).SerializeToString()
    with pytest.raises(RefusedModel, match="2 graphs"):
        refuse_foreign(content + model_of(loop(2**62)).SerializeToString())


def test_damaged_files_are_refused():
    content = model_of(loop(3)).SerializeToString()
    generator = np.random.default_rng(0)
    for _ in range(2_000):
        damaged = bytearray(content)
        for at in generator.integers(0, len(damaged), 3):
            damaged[at] = generator.integers(256)
        try:
            refuse_foreign(bytes(damaged))
        except RefusedModel:
            continue
    with pytest.raises(RefusedModel, match="damaged"):
        refuse_foreign(b"\x3a\xff\xff")


def test_a_file_that_would_loop_for_ever_is_not_run(tmp_path):
    """Also not for the constants that onnxruntime computes while it loads a file."""
    import onnx

    path = policy("bc, point").save(tmp_path / "policy")
    saved = Saved(path)
    manifest = {name: value for name, value in saved.manifest.items() if name not in ("kind", "schema", "files")}
    manifest["onnx"] = {"opset": 21, "inputs": [], "outputs": ["action"]}
    content = model_of(loop(2**62)).SerializeToString()
    write(path, {WEIGHTS: saved.read(WEIGHTS), "policy.onnx": content}, manifest)
    with pytest.raises(CheckpointError, match="which no export of tidelog holds; it was not run"):
        load_onnx(path)
    assert onnx.load(str(path / "policy.onnx")).graph.node[0].op_type == "Loop"


@pytest.mark.full
def test_the_operators_are_those_of_the_exports():
    """No operator is allowed that no policy needs."""
    import onnx

    from tidelog.policies.export.onnx import onnx_file

    found = set()
    for whole in [*map(policy, CASES), *(listing(name) for name in LISTS if name != "lists, imagined")]:
        graphs = [onnx.load_from_string(onnx_file(whole)[0]).graph]
        while graphs:
            for node in graphs.pop().node:
                found.add(node.op_type)
                graphs += [attribute.g for attribute in node.attribute if attribute.name == "body"]
    assert found <= OPERATORS
    assert OPERATORS - found == set()
