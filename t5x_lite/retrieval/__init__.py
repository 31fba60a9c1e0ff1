"""Maximum inner product search over vectors of passages, sharded over the mesh, and the index of those vectors (Guu et
al. 2020, section 3.3)."""

from t5x_lite.retrieval.index import Corpus, Index, ParamsAndCorpus, encode_all, padded_size, refresh
from t5x_lite.retrieval.inner_products import Found, search

__all__ = ["Corpus", "Found", "Index", "ParamsAndCorpus", "encode_all", "padded_size", "refresh", "search"]
