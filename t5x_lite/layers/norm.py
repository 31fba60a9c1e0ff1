"""Linen's two norms, with logical axes on their parameters."""

from typing import Any, Literal

from flax import linen as nn

Norm = Literal["rms", "layer"]


def make_norm(kind: Norm, *, epsilon: float, dtype: Any, name: str | None = None) -> nn.Module:
    """RMSNorm (Zhang and Sennrich 2019; T5's layer norm: no mean, no bias) or LayerNorm (Ba et al. 2016)."""
    scale_init = nn.with_logical_partitioning(nn.initializers.ones, ("norm",))
    if kind == "rms":
        return nn.RMSNorm(epsilon=epsilon, dtype=dtype, scale_init=scale_init, name=name)
    bias_init = nn.with_logical_partitioning(nn.initializers.zeros, ("norm",))
    return nn.LayerNorm(epsilon=epsilon, dtype=dtype, scale_init=scale_init, bias_init=bias_init, name=name)
