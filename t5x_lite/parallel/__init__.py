"""The only room that knows devices: the mesh, and which axis of an array lies along which axis of the mesh."""

from t5x_lite.parallel.mesh import (
    RULES,
    MeshShape,
    batch_sharding,
    logical_axes,
    make_mesh,
    num_parts,
    replicated,
    shardings,
    use_mesh,
)

__all__ = [
    "RULES",
    "MeshShape",
    "batch_sharding",
    "logical_axes",
    "make_mesh",
    "num_parts",
    "replicated",
    "shardings",
    "use_mesh",
]
