"""Maximum inner product search over vectors of passages, sharded over the mesh (Guu et al. 2020, section 3.3)."""

from t5x_lite.retrieval.inner_products import Found, search

__all__ = ["Found", "search"]
