"""What a search of REALM's index costs on a pod, by the TPU compiler.

    python benchmarks/retrieval.py [--topology v5p:4x4x4] [--passages 13353718] [--queries 512] [--k 8]

Vectors of 128 numbers in bfloat16, sharded over all chips, queries on every chip. The time is that of the compiler's
cycles and of its collectives. Of the selection of the best the compiler says nothing: beside it stands how long a chip
takes to read the scores of its passages once, the least that it needs. Needs libtpu (`pip install -e
'.[tpu]'`).
"""

import argparse

from rich.table import Table
from turns import wide_console


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--topology", default="v5p:4x4x4")
    parser.add_argument("--passages", type=int, default=13_353_718, help="those of Guu et al. 2020, section 4.2")
    parser.add_argument("--queries", type=int, default=512)
    parser.add_argument("--k", type=int, default=8)
    arguments = parser.parse_args()

    import jax
    import jax.numpy as jnp
    from jax.sharding import NamedSharding

    from t5x_lite.parallel import MeshShape, make_mesh, replicated, use_mesh
    from t5x_lite.parallel.mesh import partition_spec
    from t5x_lite.planning.hlo import read_hlo
    from t5x_lite.planning.timing import Schedule
    from t5x_lite.planning.topology import Topology
    from t5x_lite.retrieval.inner_products import Found, search, shard_passages

    topology = Topology.parse(arguments.topology)
    chips = len(topology.devices)
    mesh = make_mesh(MeshShape(data=chips), topology.devices)
    rows = shard_passages(arguments.passages, chips)
    sharded = NamedSharding(mesh, partition_spec(("passages", None)))
    vectors = jax.ShapeDtypeStruct((rows, 128), jnp.bfloat16, sharding=sharded)
    queries = jax.ShapeDtypeStruct((arguments.queries, 128), jnp.bfloat16, sharding=replicated(mesh))
    title = f"{arguments.passages:,} passages, {arguments.queries} queries, k {arguments.k}, {arguments.topology}"
    table = Table(
        "search",
        "vectors a chip (MiB)",
        "temporaries (MiB)",
        "without the top k (ms)",
        "reading the scores (ms)",
        title=title,
    )
    share = rows // chips * 128 * 2
    reading = rows // chips * arguments.queries * 4 / (topology.chip.hbm_bandwidth / topology.chip.devices)
    for name, approximate in (("exact", False), ("approximate", True)):

        def find(queries: jax.Array, vectors: jax.Array, approximate: bool = approximate) -> Found:
            with use_mesh(mesh):
                return search(queries, vectors, arguments.k, num_passages=arguments.passages, approximate=approximate)

        program = jax.jit(find, out_shardings=replicated(mesh)).lower(queries, vectors).compile()
        coordinates = [tuple(device.coords) for device in mesh.devices.flat]
        took = Schedule(read_hlo(program.as_text()), topology, coordinates, {}).expected.seconds
        temporaries = program.memory_analysis().temp_size_in_bytes / 2**20
        table.add_row(name, f"{share / 2**20:.0f}", f"{temporaries:,.0f}", f"{1e3 * took:.1f}", f"{1e3 * reading:.2f}")
    wide_console().print(table)


if __name__ == "__main__":
    main()
