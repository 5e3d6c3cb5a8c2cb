"""The profile of an update: which lines of a compiled program are its operations."""

from benchmarks.update_profile import OTHERS, _operations, part_of

PROGRAM = """
  %two = (f32[128,10]{1,0}, s32[128,10]{1,0}) fusion(%a, %b), kind=kLoop, metadata={op_name="jit(chunk)/reduce" id=9}
  ROOT %one = f32[64,5]{1,0} dot(%c, %d), metadata={op_name="jit(chunk)/dot_general"}
  %loop = (s32[], f32[3]{0}) while(%start), condition=%e, body=%f, metadata={op_name="jit(chunk)/while"}
  %unnamed = f32[] add(%g, %h)
"""


def test_operations_of_several_results_count_and_those_that_run_others_do_not(tmp_path):
    (tmp_path / "programs").mkdir()
    (tmp_path / "programs" / "module.cpu_after_optimizations.txt").write_text(PROGRAM)
    found = _operations(str(tmp_path))
    assert found == {"two": "fusion jit(chunk)/reduce", "one": "dot jit(chunk)/dot_general"}
    assert [part_of(one) for one in found.values()] == [OTHERS, "matrix products"]
