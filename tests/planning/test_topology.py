"""Topologies: their names, their links, and their devices where the TPU compiler is installed."""

import importlib.util
import math
import os
from importlib import metadata

import pytest

from t5x_lite.errors import InputError
from t5x_lite.parallel.chips import CHIPS
from t5x_lite.planning.topology import Topology, check_libtpu, enlarge_stacks

needs_compiler = pytest.mark.skipif(importlib.util.find_spec("libtpu") is None, reason="libtpu is not installed")


@pytest.mark.parametrize("name", ["v4:2x2x2", "v5e:16x16", "v5p:8x8x16", "v5p:4x4x12", "v6e:1x1", "tpu7x:12x12x12"])
def test_a_name_is_read_and_written(name):
    topology = Topology.parse(name)
    assert str(topology) == name
    assert topology.num_chips == math.prod(map(int, name.split(":")[1].split("x")))


def test_several_slices_are_counted_and_shown():
    several = Topology.parse("v5p:4x4x4", num_slices=3)
    assert (several.name, str(several), several.num_chips) == ("v5p:4x4x4", "3 x v5p:4x4x4", 192)
    assert several.group_bandwidth([(0, 0, 0), (1, 0, 0)]) == several.chip.link_bandwidth
    assert Topology.parse("v5p:4x4x4", num_slices=1) == Topology.parse("v5p:4x4x4")


def test_several_slices_need_a_known_network():
    assert Topology.parse("v4:2x2x2").num_slices == 1
    with pytest.raises(
        InputError,
        match="slices=2 of v4 cannot be planned, as the bandwidth between them is not published; "
        "choose slices of v5e, v5p, v6e, tpu7x, or one slice",
    ):
        Topology.parse("v4:2x2x2", num_slices=2)


@pytest.mark.parametrize(
    ("name", "remedy"),
    [
        ("v9:2x2", "choose KIND:SHAPE with one of v4, v5e, v5p, v6e, tpu7x, such as v5p:4x4x4"),
        ("v5p", "choose v5p:2x2x1, .*v5p:16x16x24, or any other of whole cubes of 4x4x4 up to 6144 chips"),
        ("v5p:4x4x6", "choose v5p:2x2x1"),
        ("v5p:16x16x28", "choose v5p:2x2x1"),
        ("v5p:4x4", "choose v5p:2x2x1"),
        ("v5e:4x4x4", "choose v5e:1x1, .*v5e:16x16$"),
        ("v5e:0x4", "choose v5e:1x1"),
        ("v5e:4x4 ", "choose v5e:1x1"),
    ],
)
def test_an_unknown_topology_is_answered_with_known_ones(name, remedy):
    with pytest.raises(InputError, match=f"topology='{name}' is not known; {remedy}"):
        Topology.parse(name)


def test_every_published_shape_is_known():
    for chip in CHIPS.values():
        for shape in chip.shapes:
            assert Topology.parse(f"{chip.name}:{shape}").num_chips <= chip.pod
        assert chip.source.startswith("https://docs.cloud.google.com/tpu/docs/")


def test_figures_of_a_chip_go_together():
    """Products that documentation pages give as well: a pod's operations and its all-reduce bandwidth."""
    assert 256 * CHIPS["v5e"].peak_flops == pytest.approx(50.63e15, rel=0.01)
    assert 256 * CHIPS["v6e"].peak_flops == pytest.approx(234.9e15, rel=0.01)
    assert 256 * CHIPS["v5e"].ici_bandwidth / 2 == pytest.approx(51.2e12, rel=0.01)
    assert 256 * CHIPS["v6e"].ici_bandwidth / 2 == pytest.approx(102.4e12, rel=0.01)
    # The network's bandwidth in bits: of a pod, of the cards of a host's eight chips, of a chip.
    assert 8 * 256 * CHIPS["v5e"].dcn_bandwidth == pytest.approx(6.4e12)
    assert 8 * 256 * CHIPS["v6e"].dcn_bandwidth == pytest.approx(25.6e12)
    assert 8 * 8 * CHIPS["v5e"].dcn_bandwidth == pytest.approx(2 * 100e9)
    assert 8 * 8 * CHIPS["v6e"].dcn_bandwidth == pytest.approx(4 * 200e9)
    assert (8 * CHIPS["v5p"].dcn_bandwidth, 8 * CHIPS["tpu7x"].dcn_bandwidth) == (50e9, 100e9)
    assert 4096 * CHIPS["v4"].peak_flops == pytest.approx(1.1e18, rel=0.03)
    assert CHIPS["v5p"].link_bandwidth == CHIPS["tpu7x"].link_bandwidth == 100e9


def test_links_between_chips():
    pod, part, flat = Topology.parse("v5p:4x4x8"), Topology.parse("v5p:2x2x2"), Topology.parse("v5e:8x16")

    def line(*positions):
        return [(position, 0, 0) for position in positions]

    link = pod.chip.link_bandwidth
    assert pod.group_bandwidth(line(0, 1, 2, 3)) == 2 * link  # a ring, both ways round
    assert pod.group_bandwidth(line(0, 1)) == link
    assert pod.group_bandwidth([(0, 0, z) for z in range(4)]) == link  # half of a ring is a line
    everywhere = [(x, y, z) for x in range(4) for y in range(4) for z in range(8)]
    assert pod.group_bandwidth(everywhere) == 6 * link == pod.chip.ici_bandwidth / 2
    assert part.group_bandwidth([(0, 0, 0), (1, 1, 1)]) == 3 * link  # smaller than a cube: no ring
    assert flat.group_bandwidth([(x, 0, 0) for x in range(8)]) == flat.chip.link_bandwidth
    assert flat.group_bandwidth([(0, y, 0) for y in range(16)]) == 2 * flat.chip.link_bandwidth
    assert pod.group_bandwidth(line(2)) == math.inf  # the two halves of one chip


def test_without_the_compiler_the_error_names_the_package(monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(InputError, match=r"'v5p:2x2x1' needs the TPU compiler.*pip install 't5x_lite\[tpu\]'"):
        Topology.parse("v5p:2x2x1").devices  # noqa: B018


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (None, "--fibers_default_thread_stack_size=4194304"),
        ("--xla_a=1", "--xla_a=1 --fibers_default_thread_stack_size=4194304"),
        ("--fibers_default_thread_stack_size=1", "--fibers_default_thread_stack_size=1"),
    ],
)
def test_larger_stacks_are_added_to_other_options(monkeypatch, given, expected):
    monkeypatch.delenv("LIBTPU_INIT_ARGS", raising=False)
    if given is not None:
        monkeypatch.setenv("LIBTPU_INIT_ARGS", given)
    enlarge_stacks()
    enlarge_stacks()
    assert os.environ["LIBTPU_INIT_ARGS"] == expected


@needs_compiler
@pytest.mark.parametrize(
    ("name", "hosts"),
    [("v4:2x2x2", 2), ("v5e:1x1", 1), ("v5e:4x4", 4), ("v5p:4x4x4", 16), ("v6e:2x4", 2), ("tpu7x:2x2x2", 2)],
)
def test_devices_are_those_of_the_slice(name, hosts):
    topology = Topology.parse(name)
    devices = topology.devices
    assert len(devices) == topology.num_chips * topology.chip.devices
    assert topology.num_hosts == hosts
    width = len(topology.shape)
    assert len({tuple(device.coords)[:width] for device in devices}) == topology.num_chips


@needs_compiler
@pytest.mark.parametrize(("name", "hosts"), [("v5e:1x1", 3), ("v5p:2x2x2", 6), ("v5p:4x4x4", 48)])
def test_devices_of_several_slices(name, hosts):
    topology = Topology.parse(name, num_slices=3)
    slices = [device.slice_index for device in topology.devices]
    assert slices == sorted(slices), "slice after slice"
    assert [slices.count(number) for number in range(3)] == 3 * [topology.num_chips // 3]
    assert topology.num_hosts == hosts


@pytest.fixture
def versions(monkeypatch):
    """`versions(libtpu, pin)`: another TPU compiler is installed, and JAX asks for this one."""

    def versions(libtpu, pin):
        known = {"libtpu": libtpu, "jax": "0.10.2"}
        monkeypatch.setattr(metadata, "version", known.__getitem__)
        monkeypatch.setattr(metadata, "requires", lambda name: ["numpy>=2", *pin])

    return versions


@pytest.mark.parametrize("pin", [['libtpu==0.0.42.*; extra == "tpu"'], []])
def test_the_compiler_that_jax_names_is_taken(versions, pin):
    versions("0.0.42.1", pin)
    check_libtpu()


def test_another_compiler_than_jax_names_is_refused_before_it_is_loaded(versions, monkeypatch):
    versions("0.0.52", ['libtpu==0.0.42.*; extra == "tpu"', 'libtpu==0.0.7; extra == "other"'])
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: name)
    with pytest.raises(
        InputError, match=r"libtpu=0\.0\.52 does not go with jax 0\.10\.2, which needs libtpu==0\.0\.42\.\*"
    ):
        Topology.parse("v5p:2x2x2").devices  # noqa: B018


@needs_compiler
def test_the_installed_compiler_goes_with_jax():
    """Of the real packages' metadata: JAX names a compiler."""
    assert any(line.startswith("libtpu") for line in metadata.requires("jax"))
    check_libtpu()
