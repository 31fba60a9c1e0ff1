"""Times that a schedule is expected to take, of programs written as the TPU compiler writes them."""

import importlib.util

import pytest

from t5x_lite.planning.hlo import read_hlo
from t5x_lite.planning.timing import ExpectedTime, Schedule
from t5x_lite.planning.topology import Topology

CUBE = Topology.parse("v5p:2x2x2")
COORDINATES = [(x, y, z) for x in range(2) for y in range(2) for z in range(2)]
CLOCK = CUBE.chip.clock
GATHERED = 7 * 16 * 64 * 2 / (3 * CUBE.chip.link_bandwidth)
"""Seconds of the gather below."""

LOOP = """HloModule jit_step, is_scheduled=true

%body (p: (s32[], bf16[16,64])) -> (s32[], bf16[16,64]) {
  %p = (s32[], bf16[16,64]{1,0}) parameter(0)
  %count = s32[] get-tuple-element(%p), index=0
  %x = bf16[16,64]{1,0} get-tuple-element(%p), index=1
  %one = s32[] constant(1)
  %next = s32[] add(%count, %one)
  %double = bf16[16,64]{1,0} add(%x, %x), backend_config={"window_config":{"estimated_cycles":"700"}}
  ROOT %result = (s32[], bf16[16,64]{1,0}) tuple(%next, %double)
}

%condition (c: (s32[], bf16[16,64])) -> pred[] {
  %c = (s32[], bf16[16,64]{1,0}) parameter(0)
  %number = s32[] get-tuple-element(%c), index=0
  %end = LIMIT
  ROOT %less = pred[] compare(%number, %end), direction=LT
}

ENTRY %main (x: bf16[16,64]) -> bf16[16,64] {
  %x.1 = bf16[16,64]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %begin = (s32[], bf16[16,64]{1,0}) tuple(%zero, %x.1)
  %loop = (s32[], bf16[16,64]{1,0}) while(%begin), condition=%condition, body=%body
  ROOT %y = bf16[16,64]{1,0} get-tuple-element(%loop), index=1
}
"""

GATHERS = """HloModule jit_step, is_scheduled=true

%begins (x: bf16[16,64]) -> bf16[128,64] {
  %x = bf16[16,64]{1,0} parameter(0)
  %gather.1 = bf16[128,64]{1,0} all-gather(%x), channel_id=1, replica_groups={}, dimensions={0}
  ROOT %start = bf16[128,64]{1,0} custom-call(%gather.1), custom_call_target="AsyncCollectiveStart"
}

%async_collective_fusion (y: bf16[16,64]) -> bf16[16,64] {
  %y = bf16[16,64]{1,0} parameter(0)
  %gather.2 = bf16[128,64]{1,0} all-gather(%y), channel_id=1, replica_groups={}, dimensions={0}
  ROOT %sum = bf16[16,64]{1,0} add(%y, %y)
}

%ends (z: bf16[16,64]) -> bf16[128,64] {
  %z = bf16[16,64]{1,0} parameter(0)
  %gather.3 = bf16[128,64]{1,0} all-gather(%z), channel_id=1, replica_groups={}, dimensions={0}
  ROOT %done = bf16[128,64]{1,0} custom-call(%gather.3), custom_call_target="AsyncCollectiveDone"
}

ENTRY %main (a: bf16[16,64]) -> bf16[128,64] {
  %a = bf16[16,64]{1,0} parameter(0)
  %begun = bf16[128,64]{1,0} fusion(%a), kind=kCustom, calls=%begins
  %between = bf16[16,64]{1,0} fusion(%a), kind=kLoop, calls=%async_collective_fusion, backend_config={CYCLES}
  ROOT %ended = bf16[128,64]{1,0} fusion(%a), kind=kCustom, calls=%ends
}
"""

PAIR = """HloModule jit_step, is_scheduled=true

ENTRY %main (a: bf16[16,64]) -> bf16[128,64] {
  %a = bf16[16,64]{1,0} parameter(0)
  %begun = (bf16[16,64]{1,0}, bf16[128,64]{1,0}) all-gather-start(%a), replica_groups={}, dimensions={0}
  %between = bf16[16,64]{1,0} add(%a, %a), backend_config={CYCLES}
  ROOT %ended = bf16[128,64]{1,0} all-gather-done(%begun)
}
"""


SEND = 'is_host_transfer=true, frontend_attributes={_xla_host_transfer_rendezvous="NAME",'
SEND += '_xla_megascale_target="{1,2}x{0:7}",_xla_megascale_transfer_type="ALL_REDUCE"}'
BETWEEN_SLICES = f"""HloModule jit_step, is_scheduled=true

ENTRY %main (a: f32[16,128]) -> f32[16,128] {{
  %a = f32[16,128]{{1,0}} parameter(0)
  %token.1 = token[] after-all()
  %token.2 = token[] after-all()
  %send.1 = (f32[16,128]{{1,0}}, u32[], token[]) send(%a, %token.1), channel_id=2, {SEND.replace("NAME", "first")}
  %send.2 = (f32[16,128]{{1,0}}, u32[], token[]) send(%a, %token.2), channel_id=4, {SEND.replace("NAME", "second")}
  %recv.1 = (f32[16,128]{{1,0}}, u32[], token[]) recv(%token.1), channel_id=1, {SEND.replace("NAME", "first")}
  %recv.2 = (f32[16,128]{{1,0}}, u32[], token[]) recv(%token.2), channel_id=3, {SEND.replace("NAME", "second")}
  %between = f32[16,128]{{1,0}} BETWEEN
  %sent.1 = token[] send-done(%send.1), channel_id=2
  %got.1 = (f32[16,128]{{1,0}}, token[]) recv-done(%recv.1), channel_id=1
  %after = f32[16,128]{{1,0}} add(%a, %a), backend_config={{AFTER}}
  ROOT %got.2 = (f32[16,128]{{1,0}}, token[]) recv-done(%recv.2), channel_id=3
}}
"""
SUMMED = 16 * 128 * 4 * 8 / 50e9
"""Seconds of each of the two sums: half of the array from the other slice and half of the sum, at 50 Gbit/s."""


def expected(text: str, **kernel_cycles: int) -> ExpectedTime:
    return Schedule(read_hlo(text), CUBE, COORDINATES, kernel_cycles).expected


def cycles(count: float) -> str:
    return f'{{"window_config":{{"estimated_cycles":"{round(count)}"}}}}'


def test_a_loop_takes_its_body_as_often_as_it_runs():
    took = expected(LOOP.replace("LIMIT", "s32[] constant(24)"))
    assert took == ExpectedTime(operations=pytest.approx(24 * 700 / CLOCK))


def test_a_loop_of_unknown_length_counts_once_and_says_what_a_round_takes():
    took = expected(LOOP.replace("LIMIT", "s32[] get-tuple-element(%c), index=0"))
    assert took == ExpectedTime(operations=pytest.approx(700 / CLOCK), data_round=pytest.approx(700 / CLOCK))
    assert (took * 3 + took).data_round == pytest.approx(4 * 700 / CLOCK)
    assert took.seconds == took.operations


@pytest.mark.parametrize("text", [GATHERS, PAIR], ids=["fusions", "start and done"])
@pytest.mark.parametrize("share", [0.0, 0.25, 1.0, 3.0])
def test_work_between_begin_and_end_hides_a_collective(text, share):
    work = share * GATHERED
    took = expected(text.replace("{CYCLES}", cycles(work * CLOCK)))
    assert took.operations == pytest.approx(work, abs=1 / CLOCK)
    assert took.exposed == pytest.approx(max(GATHERED - work, 0.0), abs=2 / CLOCK)


def test_a_collective_that_is_not_asynchronous_is_exposed():
    text = PAIR.replace("all-gather-start", "all-gather").replace(
        "(bf16[16,64]{1,0}, bf16[128,64]{1,0}) ", "bf16[128,64] "
    )
    text = text.replace("all-gather-done", "copy").replace("{CYCLES}", cycles(10**6))
    assert expected(text).exposed == pytest.approx(GATHERED)


@pytest.mark.parametrize(
    ("between", "after", "exposed"),
    [(0.0, 0.0, 2.0), (0.25, 0.0, 1.75), (1.5, 0.0, 0.5), (0.0, 0.75, 1.25), (3.0, 0.0, 0.0), (0.5, 9.0, 0.5)],
)
def test_sums_between_slices_run_one_after_the_other_beside_work(between, after, exposed):
    """Work and what is exposed are given in `SUMMED`; the first sum is awaited before the work that comes last."""
    add = f"add(%a, %a), backend_config={cycles(between * SUMMED * CLOCK)}"
    text = BETWEEN_SLICES.replace("BETWEEN", add).replace("{AFTER}", cycles(after * SUMMED * CLOCK))
    took = expected(text)
    assert took.operations == pytest.approx((between + after) * SUMMED, abs=1 / CLOCK)
    assert took.exposed == pytest.approx(exposed * SUMMED, abs=2 / CLOCK)


def test_the_network_between_slices_runs_while_links_are_awaited():
    """A sum within the slice, which nothing runs beside, takes longer than the first sum between slices."""
    rows = 16 * 32
    within = 2 * rows * 128 * 4 * 7 / 8 / (3 * CUBE.chip.link_bandwidth)
    assert SUMMED < within < 2 * SUMMED
    text = BETWEEN_SLICES.replace("BETWEEN", "all-reduce(%large), replica_groups={}, to_apply=%add")
    text = text.replace("  %token.1", f"  %large = f32[{rows},128]{{1,0}} broadcast(%a)\n  %token.1", 1)
    assert expected(text.replace("{AFTER}", cycles(0))).exposed == pytest.approx(2 * SUMMED)


def test_kernels_count_by_their_own_cycles():
    text = PAIR.replace("{CYCLES}", cycles(5))
    took = expected(text, between=1_750_000)
    assert (took.operations, took.kernels) == (0.0, pytest.approx(1e-3))
    assert took.seconds == took.operations + took.kernels + took.exposed


@pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")
def test_cycles_of_a_kernel_grow_with_its_tiles():
    import jax
    import jax.numpy as jnp

    from t5x_lite.kernels.flash_attention import flash_attention
    from t5x_lite.kernels.masks import AttentionInputs
    from t5x_lite.planning.kernels import kernel_cycles

    slice_of_one = Topology.parse("v5e:1x1")

    def cycles_of(length: int) -> int:
        sharding = jax.sharding.SingleDeviceSharding(slice_of_one.devices[0])
        x = jax.ShapeDtypeStruct((1, length, 1, 128), jnp.bfloat16, sharding=sharding)
        step = jax.jit(lambda x: flash_attention(AttentionInputs(x, x, x, 1.0), query_block=128, key_block=128))
        (count,) = kernel_cycles(read_hlo(step.lower(x).compile().as_text()), slice_of_one).values()
        return count

    assert 2 * cycles_of(128) < cycles_of(512) < 32 * cycles_of(128)
