"""Bundles of a kernel, as the TPU compiler writes them: a loop, with regions that branches skip."""

import pytest

from t5x_lite.planning.kernels import count_bundles


def bundles(*parts: tuple[int, str]) -> str:
    """The text of parts of so many bundles; the notes of a part stand in its first one."""
    lines, address = ["= control target key start", "LB: loop body", "= control target key end"], 0
    for count, notes in parts:
        for n in range(count):
            mark, note = notes.partition("|")[::2] if n == 0 else ("", "")
            lines.append(f" {address:#x} {mark}  : > {{ %s1 = sadd.s32 1, %s0 {note} }}")
            address += 1
    return "\n".join(lines)


def branch(region: int) -> str:
    return f";;  %9 = sbr.rel (%p1) target = $region{region}"


@pytest.mark.parametrize(("alternatives", "counted"), [(0, (22, 45)), (1, (52, 15)), (2, (52, 5))])
def test_a_step_is_the_loop_without_what_it_may_skip(alternatives, counted):
    """Of a pipeline's region, which holds all others, every bundle counts."""
    text = bundles(
        (10, ""),
        (4, "LB|"),
        (3, f"|{branch(40)}"),
        (5, f"|{branch(41)}"),
        (30, f"PF|/* Start/End empty region 41 */ {branch(42)}"),
        (10, f"PF|/* Start/End empty region 42 */ {branch(43)}"),
        (11, "PF|/* Start/End empty region 43 */"),
        (3, "PF|/* Start/End empty region 40 */"),
        (1, f"|/* back */ {branch(7)}"),
        (6, ""),
    )
    assert count_bundles(text, alternatives) == counted
