"""Reading compiled programs: those of this machine against what is known of them, and the TPU compiler's notations."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.planning.collectives import device_groups, read_collectives
from t5x_lite.planning.hlo import matrix_flops, memory_traffic, read_hlo
from t5x_lite.planning.topology import Topology

CUBE = Topology.parse("v5p:2x2x2")
COORDINATES = [(x, y, z) for x in range(2) for y in range(2) for z in range(2)]
LAYERS, WIDTH, ROWS = 3, 64, 16


@pytest.fixture(scope="module")
def program():
    """A scan over layers whose matrices are cut along `fsdp`, and its gradient, for eight devices."""
    mesh = make_mesh(MeshShape(data=2, fsdp=4))

    def loss(matrices, x):
        y, _ = jax.lax.scan(lambda x, matrix: (jnp.tanh(x @ matrix), None), x, matrices)
        return (y**2).sum()

    def abstract(shape, *axes):
        return jax.ShapeDtypeStruct(shape, jnp.float32, sharding=NamedSharding(mesh, P(*axes)))

    arguments = abstract((LAYERS, WIDTH, WIDTH), None, "fsdp"), abstract((ROWS, WIDTH), ("data", "fsdp"))
    return read_hlo(jax.jit(jax.grad(loss)).lower(*arguments).compile().as_text())


def test_operations_count_a_loop_as_often_as_it_runs(program):
    """One product forward, two backward, in each layer, on an eighth of the rows."""
    assert matrix_flops(program) == 3 * LAYERS * 2 * (ROWS // 8) * WIDTH * WIDTH


def test_collectives_count_a_loop_as_often_as_it_runs(program):
    """Each layer's matrix is gathered forward and backward by the four that share it; its gradient is summed by all."""
    collectives = {(each.kind, each.group_size): each for each in read_collectives(program, CUBE, COORDINATES)}
    gathers, sums = collectives["all-gather", 4], collectives["all-reduce", 8]
    assert (gathers.count, sums.count) == (2 * LAYERS, LAYERS)
    assert gathers.num_bytes == 2 * LAYERS * 4 * WIDTH * WIDTH * 3 // 4
    assert sums.num_bytes == LAYERS * 2 * 4 * WIDTH * WIDTH * 7 // 8
    assert gathers.largest == f"f32[{WIDTH // 4},{WIDTH}]"
    link = CUBE.chip.link_bandwidth
    assert sums.seconds == pytest.approx(sums.num_bytes / (3 * link))
    assert gathers.seconds == pytest.approx(gathers.num_bytes / (2 * link))


def test_devices_of_one_chip_share_its_links(program):
    halves = [(device // 4, device // 2 % 2, 0) for device in range(8)]
    (sums,) = (each for each in read_collectives(program, CUBE, halves) if each.kind == "all-reduce")
    assert sums.seconds == pytest.approx(2 * sums.num_bytes / (2 * CUBE.chip.link_bandwidth))


def test_memory_traffic_of_a_product():
    """Two matrices in, one out; nothing else."""
    a, b = jnp.ones((128, 256)), jnp.ones((256, 64))
    text = jax.jit(lambda a, b: a @ b).lower(a, b).compile().as_text()
    assert memory_traffic(read_hlo(text)) == 4 * (128 * 256 + 256 * 64 + 128 * 64)


def test_memory_traffic_of_slices():
    """Of a stack that is read and written layer by layer, each layer counts once, not the stack in every round."""
    stack = jnp.ones((50, 64, 64))

    def each(stack):
        return jax.lax.scan(lambda _, layer: (None, jnp.tanh(layer)), None, stack)[1]

    traffic = memory_traffic(read_hlo(jax.jit(each).lower(stack).compile().as_text()))
    assert 2 * stack.nbytes <= traffic < 6 * stack.nbytes < 50 * stack.nbytes


@pytest.mark.parametrize(
    ("written", "groups"),
    [
        ("replica_groups={{0,1,2,3},{4,5,6,7}}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=[2,4]<=[8]", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=[4,2]<=[2,2,2]T(1,2,0)", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_groups=mesh['x'=8] {'x'}", [[0, 1, 2, 3, 4, 5, 6, 7]]),
        ("replica_groups=mesh['x'=4,'y'=1,'z'=2], device_ids=([2,4]T(1,0)) {'x'}", [[0, 1, 2, 3], [4, 5, 6, 7]]),
        ("replica_groups=mesh['x'=2,'y'=4] {'x'}", [[0, 4], [1, 5], [2, 6], [3, 7]]),
        ("replica_groups=mesh['x'=2,'y'=4] {'y':(1)2}", [[0, 2], [1, 3], [4, 6], [5, 7]]),
        ("replica_groups=mesh['x'=2,'y'=4] {'x','y':(2)2}", [[0, 1, 4, 5], [2, 3, 6, 7]]),
    ],
)
def test_groups_of_devices(written, groups):
    np.testing.assert_array_equal(device_groups(f"channel_id=1, {written}, dimensions={{0}}", 8), groups)


def test_an_unknown_notation_is_refused():
    with pytest.raises(ValueError, match="not known"):
        device_groups("replica_groups=everyone", 8)


TPU = """HloModule jit_step, is_scheduled=true

%reduce (a: f32[], b: f32[]) -> f32[] {
  %a = f32[] parameter(0)
  %b = f32[] parameter(1)
  ROOT %add = f32[] add(%a, %b)
}, execution_thread="sparsecore"

%product (p0: bf16[256,512], p1: bf16[512,128]) -> bf16[256,128] {
  %p0 = bf16[256,512]{1,0:T(8,128)(2,1)} parameter(0)
  %p1 = bf16[512,128]{1,0:T(8,128)(2,1)S(1)} parameter(1)
  ROOT %convolution.1 = bf16[256,128]{1,0:T(8,128)(2,1)} convolution(%p0, %p1), dim_labels=bf_io->bf
}

ENTRY %main (x: bf16[256,512], y: bf16[512,128]) -> (bf16[256,128], f32[16]) {
  %x = bf16[256,512]{1,0:T(8,128)(2,1)} parameter(0)
  %y = bf16[512,128]{1,0:T(8,128)(2,1)} parameter(1)
  %copy-start = (bf16[512,128]{1,0:T(8,128)(2,1)S(1)}, bf16[512,128]{1,0}, u32[]{:S(2)}) copy-start(%y)
  %copy-done = bf16[512,128]{1,0:T(8,128)(2,1)S(1)} copy-done(%copy-start)
  %fusion = bf16[256,128]{1,0:T(8,128)(2,1)} fusion(%x, %copy-done), kind=kOutput, calls=%product
  %constant.1 = f32[128]{0:T(128)} constant({...})
  %reduce-scatter = f32[16]{0:T(128)} reduce-scatter(%constant.1), replica_groups={}, dimensions={0}, to_apply=%reduce
  %permute-start = (f32[16], f32[16]) collective-permute-start(%reduce-scatter), source_target_pairs={{0,1},{1,3},{3,0}}
  %permute-done = f32[16]{0} collective-permute-done(%permute-start)
  ROOT %tuple = (bf16[256,128]{1,0:T(8,128)(2,1)}, /*index=1*/f32[16]{0:T(128)}) tuple(%fusion, %permute-done)
}
"""


def test_the_text_of_the_tpu_compiler():
    """Products are convolutions there, layouts are long, and what is marked S(1) is on the chip already."""
    program = read_hlo(TPU)
    assert matrix_flops(program) == 2 * 256 * 512 * 128
    collectives = read_collectives(program, CUBE, COORDINATES)
    assert [(each.kind, each.group_size, each.count, each.num_bytes) for each in collectives] == [
        ("reduce-scatter", 8, 1, 128 * 4 * 7 // 8),
        ("collective-permute", 3, 1, 16 * 4),
    ]
    x, y, out = 2 * 256 * 512, 2 * 512 * 128, 2 * 256 * 128
    assert memory_traffic(program) - (x + y + out) < 2000  # the rest are the few bytes that are sent


PIECE = """%PIECE (x: bf16[2,64]) -> bf16[16,64] {
  %x = bf16[2,64]{1,0} parameter(0)
  ROOT %g = bf16[16,64]{1,0} all-gather(%x), channel_id=1, replica_groups={}, dimensions={0}, metadata={op_name="NAME"}
}

"""
PIECES = """ENTRY %main (x: bf16[2,64]) -> bf16[16,64] {
  %x = bf16[2,64]{1,0} parameter(0)
  %begun = bf16[16,64]{1,0} fusion(%x), kind=kCustom, calls=%first
  %ended = bf16[16,64]{1,0} fusion(%x), kind=kCustom, calls=%second
  %other = bf16[16,64]{1,0} fusion(%x), kind=kCustom, calls=%third
  %one = bf16[16,64]{1,0} all-gather(%x), channel_id=1, replica_groups={}, dimensions={0}, metadata={op_name="c"}
  ROOT %two = bf16[16,64]{1,0} all-gather(%x), channel_id=1, replica_groups={}, dimensions={0}, metadata={op_name="c"}
}
"""


def test_pieces_of_one_collective_count_once_and_others_on_its_channel_for_themselves():
    """In fusions, that is; layers without a loop send outside of them by one channel and name."""
    pieces = (("first", "a"), ("second", "a"), ("third", "b"))
    text = "".join(PIECE.replace("PIECE", piece).replace("NAME", name) for piece, name in pieces)
    (collective,) = read_collectives(read_hlo(text + PIECES), CUBE, COORDINATES)
    assert collective.count == 4


MEGASCALE = 'is_host_transfer=true, frontend_attributes={_xla_host_transfer_handler_name="xla_megascale_runtime"'
BETWEEN = f"""HloModule jit_step, is_scheduled=true

ENTRY %main (x: f32[4,8,128]) -> f32[4,8,128] {{
  %x = f32[4,8,128]{{2,1,0:T(8,128)}} parameter(0)
  %in_slice = f32[4,8,128]{{2,1,0:T(8,128)}} all-reduce(%x), channel_id=3, replica_groups={{}}, to_apply=%add
  %token = token[] after-all(), frontend_attributes={{MegascaleRendezvousKeyName="sum_0"}}
  %send = (f32[4,8,128]{{2,1,0:T(8,128)}}, u32[], token[]) send(%x, %token), channel_id=2, {MEGASCALE},HOW}}
  %recv = (f32[4,8,128]{{2,1,0:T(8,128)}}, u32[], token[]) recv(%token), channel_id=1, {MEGASCALE},HOW}}
  %send-done = token[] send-done(%send), channel_id=2, {MEGASCALE}}}
  ROOT %recv-done = (f32[4,8,128]{{2,1,0:T(8,128)}}, token[]) recv-done(%recv), channel_id=1, {MEGASCALE}}}
}}
"""
SENT = 4 * 8 * 128 * 4


def sent_between(kind: str, target: str) -> str:
    """A program that sends an array to the chips of other slices, as the TPU compiler writes it."""
    how = f'_xla_host_transfer_rendezvous="sum_0",_xla_megascale_target={target},_xla_megascale_transfer_type="{kind}"'
    return BETWEEN.replace("HOW", how)


@pytest.mark.parametrize(
    ("written", "target", "kind", "slices", "received"),
    [
        ("ALL_REDUCE", '"{1,2}x{0:7}"', "all-reduce", 2, SENT),
        ("ALL_REDUCE", '"{1,2,3,4}x{0:7}"', "all-reduce", 4, 2 * SENT * 3 // 4),
        ("REDUCE_SCATTER", '"{1,2,3,4}x{0:7}"', "reduce-scatter", 4, SENT * 3 // 4),
        ("ALL_GATHER", '"{1,2,3,4}x{0:7}"', "all-gather", 4, 3 * SENT),
        ("ALL_TO_ALL", "{{100000,200000},{100001,200001}}", "all-to-all", 2, SENT // 2),
        ("ONE_TO_ONE", "{{100000->200000},{200000->300000},{300000->100000}}", "collective-permute", 3, SENT),
    ],
)
def test_collectives_between_slices_go_over_their_network(written, target, kind, slices, received):
    program = read_hlo(sent_between(written, target))
    found = {each.network: each for each in read_collectives(program, CUBE, COORDINATES)}
    assert (found["ici"].kind, found["ici"].group_size) == ("all-reduce", 8)
    between = found["dcn"]
    assert (between.kind, between.group_size, between.count) == (kind, slices, 1)
    assert (between.num_bytes, between.largest) == (received, "f32[4,8,128]")
    # 50 Gbit/s of a v5p chip; the two devices of a tpu7x chip share its 100.
    assert between.seconds == pytest.approx(8 * received / 50e9)
    chip_of_two = Topology.parse("tpu7x:2x2x1", num_slices=slices)
    (shared,) = (each for each in read_collectives(program, chip_of_two, COORDINATES) if each.network == "dcn")
    assert shared.seconds == pytest.approx(2 * 8 * received / 100e9)


def test_what_goes_to_the_host_alone_is_not_between_slices():
    program = read_hlo(BETWEEN.replace(",HOW", ""))
    assert {each.network for each in read_collectives(program, CUBE, COORDINATES)} == {"ici"}


@pytest.mark.parametrize(
    ("kind", "target", "says"), [("GOSSIP", '"{1,2}x{0:7}"', "kind that is not"), ("ALL_REDUCE", '"all"', "slices of")]
)
def test_unknown_transfers_between_slices_are_refused(kind, target, says):
    with pytest.raises(ValueError, match=says):
        read_collectives(read_hlo(sent_between(kind, target)), CUBE, COORDINATES)


def test_what_is_sent_is_read_and_what_is_received_is_written_once():
    in_slice = 2 * SENT
    traffic = memory_traffic(read_hlo(sent_between("ALL_REDUCE", '"{1,2}x{0:7}"')))
    assert 0 <= traffic - in_slice - 2 * SENT < 100  # the rest are counters


@pytest.mark.parametrize(
    ("attributes", "left", "right", "output", "products"),
    [
        ("dim_labels=bf_io->bf", (7, 5), (5, 3), (7, 3), 7 * 5 * 3),
        ("dim_labels=fb_io->bf", (5, 7), (5, 3), (7, 3), 7 * 5 * 3),
        # A batch of four products: one place in four of the window meets the input.
        (
            "window={size=4 stride=3 pad=0_0 lhs_dilate=4}, dim_labels=0bf_0io->0bf",
            (4, 7, 5),
            (4, 5, 3),
            (4, 7, 3),
            420,
        ),
        ("window={size=3 pad=1_1}, dim_labels=b0f_0io->b0f", (1, 6, 2), (3, 2, 4), (1, 6, 4), (3 * 6 - 2) * 2 * 4),
    ],
)
def test_operations_of_convolutions(attributes, left, right, output, products):
    def array(name, shape):
        return f"  %{name} = f32[{','.join(map(str, shape))}] parameter({'lr'.index(name[0])})\n"

    text = f"ENTRY %main (l: f32[], r: f32[]) -> f32[] {{\n{array('l', left)}{array('r', right)}"
    text += f"  ROOT %c = f32[{','.join(map(str, output))}] convolution(%l, %r), {attributes}\n}}\n"
    assert matrix_flops(read_hlo(text)) == 2 * products


KERNEL = """HloModule jit_step, is_scheduled=true

ENTRY %main (x: bf16[256,512]) -> bf16[256,512] {
  %x = bf16[256,512]{1,0} parameter(0)
  ROOT %kernel = bf16[256,512]{1,0} custom-call(%x), custom_call_target="tpu_custom_call", backend_config={CONFIG}
}
"""


def test_attributes_of_several_lines_do_not_end_a_computation():
    lines = (
        'frontend_attributes={kernel_metadata={\n"blocks":"32",\n"steps":"80"\n}}, note="a }\n} b", backend_config={'
    )
    config = '"cost_estimate":{"flops":"777","bytes_accessed":"1"}}'
    text = KERNEL.replace("backend_config={CONFIG}", lines + config).replace("  ROOT %kernel", "  %kernel")
    text = text.replace(config + "\n", config + "\n  ROOT %end = bf16[256,512]{1,0} add(%kernel, %kernel)\n")
    program = read_hlo(text)
    assert [instruction.name for instruction in program.computations["main"].instructions] == ["x", "kernel", "end"]
    assert matrix_flops(program) == 777


def test_memory_traffic_counts_filled_tiles():
    """Rows of 100 numbers take 128 each, and 3 rows take 8."""
    text = "ENTRY %main (x: f32[3,100]) -> f32[3,100] {\n  %x = f32[3,100]{1,0:T(8,128)} parameter(0)\n"
    program = read_hlo(text + "  ROOT %y = f32[3,100]{1,0:T(8,128)} negate(%x)\n}\n")
    assert memory_traffic(program) == 2 * 4 * 8 * 128


@pytest.mark.parametrize("fetched", [10**6, 1])
def test_a_kernel_counts_by_its_estimate_and_moves_its_operands_at_least(fetched):
    config = f'"cost_estimate":{{"flops":"777","transcendentals":"5","bytes_accessed":"{fetched}"}},"needs_layout":true'
    program = read_hlo(KERNEL.replace("CONFIG", config))
    assert matrix_flops(program) == 777
    assert memory_traffic(program) == max(fetched, 2 * 2 * 256 * 512)
    silent = read_hlo(KERNEL.replace("CONFIG", '"used_scoped_memory_configs":[]'))
    assert (matrix_flops(silent), memory_traffic(silent)) == (0, 2 * 2 * 256 * 512)


STACK = """%read (p: f32[8,4,128], i: s32[]) -> f32[4,128] {
  %p = f32[8,4,128]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %zero = s32[] constant(0)
  %slice = f32[1,4,128]{2,1,0} dynamic-slice(%p, %i, %zero, %zero), dynamic_slice_sizes={1,4,128}
  ROOT %layer = f32[4,128]{1,0} bitcast(%slice)
}

%write (p: f32[8,4,128], x: f32[4,128], i: s32[]) -> f32[8,4,128] {
  %p = f32[8,4,128]{2,1,0} parameter(0)
  %x = f32[4,128]{1,0} parameter(1)
  %i = s32[] parameter(2)
  %zero = s32[] constant(0)
  %layer = f32[1,4,128]{2,1,0} bitcast(%x)
  ROOT %update = f32[8,4,128]{2,1,0} dynamic-update-slice(%p, %layer, %i, %zero, %zero)
}

%both (stack: f32[8,4,128], i: s32[], out: f32[8,4,128]) -> (f32[8,4,128], f32[4,128]) {
  %stack = f32[8,4,128]{2,1,0} parameter(0)
  %i = s32[] parameter(1)
  %out = f32[8,4,128]{2,1,0} parameter(2)
  %layer = f32[4,128]{1,0} fusion(%stack, %i), kind=kLoop, calls=%read
  %next = f32[8,4,128]{2,1,0} fusion(%out, %layer, %i), kind=kLoop, calls=%write
  ROOT %results = (f32[8,4,128]{2,1,0}, f32[4,128]{1,0}) tuple(%next, %layer)
}

ENTRY %main (stack: f32[8,4,128], out: f32[8,4,128], i: s32[]) -> (f32[8,4,128], f32[4,128]) {
  %stack = f32[8,4,128]{2,1,0} parameter(0)
  %out = f32[8,4,128]{2,1,0} parameter(1)
  %i = s32[]{:S(6)} parameter(2)
  ROOT %fusion = (f32[8,4,128]{2,1,0}, f32[4,128]{1,0}) fusion(%stack, %i, %out), kind=kOutput, calls=%both
}
"""


def test_a_fusion_inside_a_fusion_reads_and_writes_slices_too():
    """One layer of a stack is read, one of another is written, and the same as a result of its own."""
    assert memory_traffic(read_hlo(STACK)) == 3 * 4 * 128 * 4


def test_a_slice_on_its_way_to_the_chip_is_read_once():
    """Its operand, which comes first among its results, is not; nor is memory touched that is only set aside."""
    text = """ENTRY %main (x: f32[64,128]) -> f32[16,128] {
  %x = f32[64,128]{1,0} parameter(0)
  %room = f32[999,128]{1,0} custom-call(), custom_call_target="AllocateBuffer"
  %start = ((f32[64,128]{1,0}), f32[16,128]{1,0:S(1)}, s32[]{:S(2)}) slice-start(%x), slice={[0:16], [0:128]}
  ROOT %done = f32[16,128]{1,0:S(1)} slice-done(%start)
}
"""
    assert memory_traffic(read_hlo(text)) == 4 * 16 * 128
