import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import linen as nn

from t5x_lite.errors import InputError
from t5x_lite.models import MAEConfig, abstract_params, init_params
from t5x_lite.optim.optimizers import Adafactor, Adagrad, Adam, AdamW, Lamb, Lars, Sgd, decays, each_layer
from t5x_lite.optim.schedules import Constant, InverseSqrt, LinearDecay
from t5x_lite.parallel import MeshShape, logical_axes, make_mesh, shardings

from ..slow import mostly_slow

AXES = {"layers": {"kernel": ("layers", "embed", "mlp"), "scale": ("layers", "norm")}, "embedding": ("vocab", "embed")}


@pytest.fixture(scope="module")
def trees():
    shapes = {"layers": {"kernel": (3, 8, 6), "scale": (3, 8)}, "embedding": (10, 8)}
    keys = iter(jax.random.split(jax.random.key(0), 9))
    draw = lambda scale: jax.tree.map(  # noqa: E731
        lambda shape: scale * jax.random.normal(next(keys), shape), shapes, is_leaf=lambda node: isinstance(node, tuple)
    )
    return draw(1.0), [draw(0.1), draw(10.0)]


def run(transformation, params, gradients):
    """The parameters after some updates, compiled in one program."""

    @jax.jit
    def updated(params, gradients):
        state = transformation.init(params)
        for gradient in gradients:
            updates, state = transformation.update(gradient, state, params)
            params = optax.apply_updates(params, updates)
        return params

    return updated(params, gradients)


def test_adam_is_vaswanis(trees):
    params, gradients = trees
    schedule = InverseSqrt(embed_dim=512, warmup_steps=4)
    reference = optax.adam(lambda count: schedule.learning_rate(count + 1), b1=0.9, b2=0.98, eps=1e-9)
    ours = run(Adam(schedule).build(AXES), params, gradients)
    jax.tree.map(np.testing.assert_array_equal, ours, run(reference, params, gradients))


@pytest.mark.parametrize("nesterov", [False, True])
def test_sgd_is_torchs(trees, torch, nesterov):
    """With another rate at each step, and decay added to the gradient of all but norms and biases."""
    params, gradients = trees
    schedule = LinearDecay(peak=0.1, warmup_steps=2, total_steps=6)
    gradients = [*gradients, gradients[0]]
    ours = run(Sgd(schedule, nesterov=nesterov, weight_decay=0.3).build(AXES), params, gradients)
    theirs = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), params)
    kernel, scale, embedding = theirs["layers"]["kernel"], theirs["layers"]["scale"], theirs["embedding"]
    groups = [{"params": [kernel, embedding], "weight_decay": 0.3}, {"params": [scale], "weight_decay": 0.0}]
    optimizer = torch.optim.SGD(groups, lr=1.0, momentum=0.9, nesterov=nesterov)
    for step, gradient in enumerate(gradients, start=1):
        for group in optimizer.param_groups:
            group["lr"] = float(schedule.learning_rate(step))
        for leaf, of in ((kernel, gradient["layers"]["kernel"]), (scale, gradient["layers"]["scale"])):
            leaf.grad = torch.tensor(np.asarray(of))
        embedding.grad = torch.tensor(np.asarray(gradient["embedding"]))
        optimizer.step()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6), ours, theirs)
    assert np.abs(ours["layers"]["scale"] - params["layers"]["scale"]).max() > 0.1


def test_adagrad_is_torchs(trees, torch):
    params, gradients = trees
    schedule = LinearDecay(peak=0.5, warmup_steps=2, total_steps=6)
    ours = run(Adagrad(schedule).build(AXES), params, gradients)
    theirs = jax.tree.map(lambda leaf: torch.tensor(np.asarray(leaf)), params)
    leaves = jax.tree.leaves(theirs)
    optimizer = torch.optim.Adagrad(leaves, lr=1.0, initial_accumulator_value=1.0, eps=0.0)
    for step, gradient in enumerate(gradients, start=1):
        optimizer.param_groups[0]["lr"] = float(schedule.learning_rate(step))
        for leaf, of in zip(leaves, jax.tree.leaves(gradient), strict=True):
            leaf.grad = torch.tensor(np.asarray(of))
        optimizer.step()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b.numpy(), rtol=1e-5, atol=1e-6), ours, theirs)


def test_the_first_update_uses_the_rate_of_step_one(trees):
    params, gradients = trees
    zeros = jax.tree.map(jnp.zeros_like, params)
    moved = run(Adam(InverseSqrt(embed_dim=512, warmup_steps=4000)).build(AXES), zeros, gradients[:1])
    # Adam's first update is the sign of the gradient times the rate.
    assert np.abs(moved["embedding"]).max() == pytest.approx(512**-0.5 * 4000**-1.5, rel=1e-2)


def test_weight_decay_spares_norms_and_biases(tiny):
    axes = logical_axes(abstract_params(tiny.model))
    flat = {jax.tree_util.keystr(p, simple=True, separator="/"): d for p, d in jax.tree.leaves_with_path(decays(axes))}
    assert {name for name, decay in flat.items() if not decay} == {
        name for name in flat if "norm" in name or "position_bias" in name
    }
    assert sum(flat.values()) > 10


@pytest.mark.parametrize(
    "optimizer",
    mostly_slow(
        [AdamW(Constant(0.1), weight_decay=0.5), Lamb(Constant(0.1)), Adafactor(), Sgd(weight_decay=0.5), Lars()],
        AdamW(Constant(0.1), weight_decay=0.5),
    ),
)
def test_fixed_positions_of_pictures_stay_as_they_are(optimizer):
    """They are among the parameters and have no gradient; nor do special tokens decay."""
    config = MAEConfig(
        (8, 8), 4, 1, embed_dim=4, num_heads=1, mlp_dim=3, num_layers=1, decoder_embed_dim=8, decoder_num_heads=1,
        decoder_mlp_dim=3, decoder_num_layers=1,
    )  # fmt: skip
    params, axes = init_params(config, jax.random.key(0)), logical_axes(abstract_params(config))
    tx = optimizer.build(axes)

    @jax.jit
    def updates(params):
        return tx.update(jax.tree.map(jnp.zeros_like, params), tx.init(params), params)[0]

    moved = updates(params)
    for part in ("embeddings", "decoder"):
        assert not moved[part]["position"]["embedding"].any()
    assert not moved["embeddings"]["class_token"].any()
    assert not moved["decoder"]["mask_token"].any()
    if isinstance(optimizer, AdamW):
        assert moved["embeddings"]["patch"]["kernel"].any()


def test_weight_decay_shrinks_what_has_no_gradient(trees):
    params, _ = trees
    zeros = jax.tree.map(jnp.zeros_like, params)
    after = run(AdamW(Constant(0.1), weight_decay=0.5).build(AXES), params, [zeros])
    np.testing.assert_allclose(after["embedding"], params["embedding"] * 0.95, rtol=1e-6)
    np.testing.assert_array_equal(after["layers"]["scale"], params["layers"]["scale"])


def separate(tree):
    """The matrix of each layer, and the embedding."""
    return [*map(np.asarray, tree["layers"]["kernel"]), tree["embedding"]]


def test_adafactor_treats_each_layer_of_a_stack_by_itself(trees):
    """The stacked parameters move exactly as three separate matrices do under `optax.adafactor`."""
    params, gradients = trees
    ours = run(Adafactor(Constant(0.01), min_dim_size_to_factor=4).build(AXES), params, gradients)
    reference = optax.adafactor(0.01, min_dim_size_to_factor=4, multiply_by_parameter_scale=True, momentum=None)
    alone = run(reference, separate(params), [separate(gradient) for gradient in gradients])
    for layer in range(3):
        np.testing.assert_allclose(ours["layers"]["kernel"][layer], alone[layer], rtol=1e-5)
    np.testing.assert_allclose(ours["embedding"], alone[-1], rtol=1e-5)


def test_lamb_treats_each_layer_of_a_stack_by_itself(trees):
    params, gradients = trees
    ours = run(Lamb(Constant(0.01), weight_decay=0.1).build(AXES), params, gradients)
    reference = optax.lamb(0.01, b1=0.9, b2=0.999, eps=1e-6, weight_decay=0.1)
    alone = run(reference, separate(params), [separate(gradient) for gradient in gradients])
    for layer in range(3):
        np.testing.assert_allclose(ours["layers"]["kernel"][layer], alone[layer], rtol=1e-5)
    np.testing.assert_allclose(ours["embedding"], alone[-1], rtol=1e-5)
    adamw = run(AdamW(Constant(0.01), weight_decay=0.1).build(AXES), params, gradients)
    np.testing.assert_allclose(ours["layers"]["scale"], adamw["layers"]["scale"], rtol=1e-6)


def test_lars_scales_each_matrix_of_a_stack_before_momentum(trees):
    """You et al. 2017, algorithm 1, with the rate after momentum; norms take the gradient as it is."""
    params, gradients = trees
    rates = LinearDecay(peak=2.0, warmup_steps=2, total_steps=6)
    ours = run(Lars(rates, momentum=0.8, weight_decay=0.3, trust_coefficient=0.01).build(AXES), params, gradients)

    def by_hand(weights, slopes, is_matrix):
        weights, kept = np.asarray(weights, np.float64), 0.0
        for step, slope in enumerate(slopes, start=1):
            slope = np.asarray(slope, np.float64)
            if is_matrix:
                slope = slope + 0.3 * weights
                slope *= 0.01 * np.linalg.norm(weights) / np.linalg.norm(slope)
            kept = 0.8 * kept + slope
            weights = weights - float(rates.learning_rate(step)) * kept
        return weights

    for layer in range(3):
        for name in ("kernel", "scale"):
            slopes = [gradient["layers"][name][layer] for gradient in gradients]
            expected = by_hand(params["layers"][name][layer], slopes, name == "kernel")
            np.testing.assert_allclose(ours["layers"][name][layer], expected, rtol=1e-4, atol=1e-5)
    expected = by_hand(params["embedding"], [gradient["embedding"] for gradient in gradients], True)
    np.testing.assert_allclose(ours["embedding"], expected, rtol=1e-4, atol=1e-5)


def test_lamb_moves_a_bias_of_zeros_by_the_rate():
    """In 3,125 steps of one gradient, as ALBERT warms up, by the sum of the rates."""
    rates = LinearDecay(peak=1.76e-3, warmup_steps=3125, total_steps=125_000)
    transformation = Lamb(rates).build({"dense": {"bias": ("embed",)}})

    @jax.jit
    def after(bias):
        def step(carry, _):
            updates, state = transformation.update({"dense": {"bias": jnp.full(4, 0.3)}}, carry[1], carry[0])
            return (optax.apply_updates(carry[0], updates), state), None

        return jax.lax.scan(step, (bias, transformation.init(bias)), length=3125)[0][0]["dense"]["bias"]

    np.testing.assert_allclose(after({"dense": {"bias": jnp.zeros(4)}}), -1.76e-3 * 3126 / 2, rtol=1e-3)


@pytest.mark.parametrize("make", [Adam, AdamW, Lamb])
def test_the_first_moment_in_half_the_bytes(trees, make):
    """Optax's `mu_dtype`: Adam's other moment stays as it is, and a step differs by bfloat16's rounding."""
    params, gradients = trees
    whole, half = (make(Constant(0.01), first_moment=dtype).build(AXES) for dtype in ("float32", "bfloat16"))
    sizes = {}
    for name, transformation, kept in (("whole", whole, "float32"), ("half", half, "bfloat16")):
        moments = [leaf for leaf in jax.tree.leaves(transformation.init(params)) if leaf.ndim]
        sizes[name] = sum(leaf.nbytes for leaf in moments)
        assert {leaf.dtype for leaf in moments} == {jnp.dtype("float32"), jnp.dtype(kept)}
    assert sizes["half"] == 3 / 4 * sizes["whole"]
    left, right = run(whole, params, gradients), run(half, params, gradients)
    differences = jax.tree.map(lambda a, b: float(np.abs(a - b).max()), left, right)
    assert 0 < max(jax.tree.leaves(differences)) < 1e-3


BOXES = {
    "encoder": {"layers": {"kernel": (("layers", "embed", "mlp"), (3, 8, 16)), "bias": (("layers", "mlp"), (3, 16))}},
    "embedding": (("vocab", "embed"), (12, 8)),
    "square": (("heads", "embed"), (8, 8)),
    "small": (("position_buckets", "position_heads"), (4, 2)),
    "bias": (("vocab",), (12,)),
}


def boxed_parameters():
    def box(axes_and_shape):
        axes, shape = axes_and_shape
        return nn.LogicallyPartitioned(jnp.zeros(shape), axes)

    return jax.tree.map(box, BOXES, is_leaf=lambda node: isinstance(node, tuple))


def test_adafactor_runs_sharded():
    """Two updates of parameters on eight devices, with factored moments and a scale for each layer."""
    boxed, mesh = boxed_parameters(), make_mesh(MeshShape(2, 2, tensor=2))
    transformation = Adafactor(Constant(0.01), min_dim_size_to_factor=4).build(logical_axes(boxed))
    random = np.random.default_rng(0)
    params, *gradients = (
        jax.tree.map(lambda leaf: random.normal(size=leaf.shape).astype(np.float32), nn.unbox(boxed)) for _ in range(3)
    )

    def step(params, state, gradient):
        updates, state = transformation.update(gradient, state, params)
        return optax.apply_updates(params, updates), state

    places = shardings(mesh, (boxed, jax.eval_shape(transformation.init, boxed)))
    sharded = jax.jit(step, in_shardings=(*places, places[0]), out_shardings=places)
    assert any(not leaf.is_fully_replicated for leaf in jax.tree.leaves(places[1]))
    state = jax.jit(lambda: nn.unbox(transformation.init(boxed)), out_shardings=places[1])()
    right = jax.device_put(params, places[0]), state
    for gradient in gradients:
        right = sharded(*right, gradient)
    left = run(transformation, params, gradients)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), jax.device_get(right[0]), left)


def is_axes(node):
    return type(node) is tuple and all(axis is None or isinstance(axis, str) for axis in node)


def test_adafactors_factors_have_the_axes_that_they_kept():
    """Of a matrix the rows' factor keeps the smaller dimension, the columns' the larger one; placeholders of absent
    factors have no axes."""

    boxed = boxed_parameters()
    axes = logical_axes(boxed)
    state = Adafactor(Constant(0.01), min_dim_size_to_factor=8).build(axes).init(boxed)
    found = {}
    for path, leaf in jax.tree.leaves_with_path(logical_axes(state), is_leaf=is_axes):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        for factor in ("v_row", "v_col", "v"):
            if f"/{factor}/" in name:
                found[factor, name.split(f"/{factor}/")[1]] = leaf
    kernel, bias = "encoder/layers/kernel", "encoder/layers/bias"
    assert found["v_row", kernel] == ("layers", "embed")
    assert found["v_col", kernel] == ("layers", "mlp")
    assert found["v_row", "embedding"] == ("embed",)
    assert found["v_col", "embedding"] == ("vocab",)
    # argsort leaves equal sizes in their order: the last dimension counts as the larger one.
    assert found["v_row", "square"] == ("heads",)
    assert found["v_col", "square"] == ("embed",)
    for name, rank in ((bias, 2), ("small", 1), ("bias", 1)):
        assert found["v_row", name] == found["v_col", name] == (None,) * rank
    assert found["v", bias] == ("layers", "mlp")
    assert found["v", "bias"] == ("vocab",)


def test_clipping_bounds_the_global_norm(trees):
    params, gradients = trees
    seen = Adafactor(Constant(1.0), clip_norm=0.5).build(AXES)
    reference = Adafactor(Constant(1.0)).build(AXES)
    norm = optax.tree.norm(gradients[1])
    clipped = jax.tree.map(lambda g: g * 0.5 / norm, gradients[1])
    left, right = run(seen, params, [gradients[1]]), run(reference, params, [clipped])
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5), left, right)


@pytest.mark.parametrize(
    "make", [lambda: Adam(b2=1.0), lambda: AdamW(weight_decay=-1.0), lambda: Adafactor(clip_norm=-1.0)]
)
def test_values_out_of_range_are_named(make):
    with pytest.raises(InputError, match="="):
        make()


def test_stacks_are_updated_in_one_order_in_all_processes():
    """A set of names has another order in each, and so would the collectives of the programs that they compile."""
    axes = {name: {"kernel": ("layers", "embed", "mlp")} for name in "fdbeca"}
    params = {name: {"kernel": jnp.ones((2, 3, 4))} for name in axes}
    state = each_layer(optax.scale_by_trust_ratio(), axes).init(params)
    assert list(state.inner_states) == sorted(axes)
