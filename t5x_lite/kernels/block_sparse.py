"""Attention in which a block of queries sees few blocks of keys (Zaheer et al. 2020, BigBird): on a TPU by a
kernel, elsewhere in plain operations.

No array is over all pairs of queries and keys: time and memory grow linearly with the length of rows.
"""

from dataclasses import replace

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from t5x_lite.kernels.attention import attention_for
from t5x_lite.kernels.masks import HEAD, MASKED_LOGIT, QUERY, ROW, SEED, AttentionInputs, Blocks, Mask, keeps
from t5x_lite.kernels.platform import platform


def block_sparse_attention(inputs: AttentionInputs) -> Float[Array, "B L H K"]:
    """Attention of rows to themselves by `inputs.blocks`; of the mask `valid` alone counts, and there is no bias."""
    blocks = inputs.blocks
    length, size = inputs.query.shape[1], blocks.size
    room = (blocks.first + blocks.random.shape[1] + blocks.last) * size
    if not room - size < length <= room:
        raise ValueError(f"rows of length {length} do not fill {room // size} blocks of {size}")
    valid = jnp.ones(inputs.key.shape[:2], bool) if inputs.mask.valid is None else inputs.mask.valid
    valid = jnp.pad(valid, ((0, 0), (0, room - length)))
    padding = ((0, 0), (0, room - length), (0, 0), (0, 0))
    query, key, value = (jnp.pad(x, padding) for x in (inputs.query, inputs.key, inputs.value))
    first, last = blocks.first * size, blocks.last * size
    whole = replace(inputs, query=query, key=key, value=value, mask=Mask(valid), blocks=None)
    rows, heads, queries = inputs.offsets or (0, 0, 0)

    rate, scalars = inputs.dropout_rate if inputs.drops else 0.0, inputs.scalars()
    if rate:  # the key is used once, by all parts
        whole = replace(whole, dropout_key=scalars[SEED : SEED + 2])

    def from_all(start: int, end: int) -> Float[Array, "B _ H K"]:
        part = replace(whole, query=query[:, start:end], offsets=(rows, heads, queries + start))
        return attention_for(end - start, room)(part)

    inner = _flash(whole, blocks, rate, scalars) if platform() == "tpu" else None
    if inner is None:
        inner = jax.checkpoint(_from_blocks, static_argnums=(2, 3))(
            replace(whole, dropout_key=None, offsets=None), blocks, rate, blocks.size, scalars
        )
    parts = [inner]
    parts = [from_all(0, first), *parts] if first else parts
    parts = [*parts, from_all(room - last, room)] if last else parts
    return jnp.concatenate(parts, axis=1)[:, :length]


def _flash(
    inputs: AttentionInputs, blocks: Blocks, rate: float, scalars: Int[Array, "5"], *, interpret: bool = False
) -> Float[Array, "B _ H K"] | None:
    """What `_from_blocks` gives, by the kernel for TPUs; None where that does not take the blocks or the rows."""
    from t5x_lite.kernels.block_sparse_flash import block_sparse_flash, fits_vmem  # Pallas is loaded for TPUs alone

    room, width = inputs.key.shape[1], inputs.key.shape[-1]
    if not fits_vmem(room, blocks.size, width, inputs.key.dtype) and not interpret:
        return None
    inner = slice(blocks.first * blocks.size, room - blocks.last * blocks.size)
    arrays = (x.swapaxes(1, 2) for x in (inputs.query[:, inner], inputs.key, inputs.value))
    options = {"scale": inputs.scale, "dropout_rate": rate, "interpret": interpret}
    return block_sparse_flash(*arrays, inputs.mask.valid, blocks, scalars, **options).swapaxes(1, 2)


def _from_blocks(
    inputs: AttentionInputs, blocks: Blocks, rate: float, size: int, scalars: Int[Array, "5"]
) -> Float[Array, "B _ H K"]:
    """The attention of the queries outside global blocks."""
    count, first, last = blocks.random.shape[1], blocks.first * size, blocks.last * size
    end, valid = first + count * size, inputs.mask.valid
    batch, _, heads, width = inputs.key.shape
    query, key, value = (getattr(inputs, name).swapaxes(1, 2) for name in ("query", "key", "value"))
    query = query[:, :, first:end].reshape(batch, heads, count, size, width)
    table = jnp.broadcast_to(blocks.random, (heads, *blocks.random.shape[1:]))
    positions = jnp.arange(key.shape[2])

    def apart(x: Array, axis: int) -> tuple[Array, Array]:
        """(the global keys, the others by block)."""
        ends = [jax.lax.slice_in_dim(x, 0, first, axis=axis), jax.lax.slice_in_dim(x, end, end + last, axis=axis)]
        inner = jax.lax.slice_in_dim(x, first, end, axis=axis)
        return jnp.concatenate(ends, axis=axis), inner.reshape(*x.shape[:axis], count, size, *x.shape[axis + 1 :])

    def around(x: Array, axis: int) -> Array:
        """For each block those of the window, zeros beyond the ends: two axes for the blocks."""
        half = blocks.window // 2
        padded = jnp.pad(x, [(half, half) if one == axis else (0, 0) for one in range(x.ndim)])
        return jnp.stack(
            [jax.lax.slice_in_dim(padded, n, n + count, axis=axis) for n in range(blocks.window)], axis + 1
        )

    def drawn(x: Array) -> Array:
        """For each block the random ones [B H Q R size ...]."""
        return x[:, jnp.arange(heads)[:, None, None], jnp.maximum(table, 0)]

    of_keys = {}
    for name, x in (("key", key), ("value", value)):
        of_ends, inner = apart(x, 2)
        of_keys[name] = (
            of_ends,
            *(one.reshape(batch, heads, count, -1, width) for one in (around(inner, 2), drawn(inner))),
        )

    def seen(x: Array) -> list[Array]:
        """What all keys have, by global keys [B 1 1 1 G], those around a block and random ones [B H Q 1 _]."""
        of_ends, inner = apart(x, 1)
        near = around(inner, 1).reshape(len(x), 1, count, 1, -1)
        far = drawn(jnp.broadcast_to(inner[:, None], (len(x), heads, count, size)))
        return [of_ends[:, None, None, None], near, far.reshape(len(x), heads, count, 1, -1)]

    masks = seen(valid)
    masks[2] &= jnp.repeat(table >= 0, size, axis=-1)[None, :, :, None]
    equations = ("bhnqd,bhmd->bhnqm", "bhnqd,bhnmd->bhnqm", "bhnqd,bhnmd->bhnqm")
    logits = [
        jnp.where(mask, jnp.einsum(one, query, keys, preferred_element_type=jnp.float32) * inputs.scale, MASKED_LOGIT)
        for one, keys, mask in zip(equations, of_keys["key"], masks, strict=True)
    ]
    sizes = [part.shape[-1] for part in logits]
    weights = jax.nn.softmax(jnp.concatenate(logits, axis=-1), axis=-1)
    if rate:
        key_positions = jnp.concatenate(
            [jnp.broadcast_to(x, (1, heads, count, 1, x.shape[-1])) for x in seen(positions[None])], axis=-1
        )
        query_positions = positions[first:end].reshape(1, 1, count, size, 1) + scalars[QUERY]
        of_rows = jnp.arange(batch).reshape(-1, 1, 1, 1, 1) + scalars[ROW]
        of_heads = jnp.arange(heads).reshape(1, -1, 1, 1, 1) + scalars[HEAD]
        kept = keeps((scalars[SEED], scalars[SEED + 1]), of_rows, of_heads, query_positions, key_positions, rate)
        weights = jnp.where(kept, weights / (1.0 - rate), 0.0)
    weights, out, start = weights.astype(value.dtype), 0.0, 0
    for number, (width_of, values) in enumerate(zip(sizes, of_keys["value"], strict=True)):
        part = weights[..., start : start + width_of]
        equation = "bhnqm,bhmd->bhnqd" if number == 0 else "bhnqm,bhnmd->bhnqd"
        out += jnp.einsum(equation, part, values, preferred_element_type=jnp.float32)
        start += width_of
    return out.astype(value.dtype).reshape(batch, heads, count * size, width).swapaxes(1, 2)
