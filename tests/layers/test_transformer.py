import functools
import re
from dataclasses import replace
from functools import partial

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.kernels.masks import DistanceBias, Mask
from t5x_lite.kernels.random_bits import HASH
from t5x_lite.layers import transformer
from t5x_lite.layers.attention import Attention
from t5x_lite.layers.dense import FeedForward, LayerConfig, make_norm
from t5x_lite.layers.transformer import Context, Layer, LayerInputs, Stack

from ..slow import mostly_slow

B, L, M, D, N = 2, 5, 3, 6, 3
CONFIG = LayerConfig(num_heads=2, head_dim=4, mlp_dim=7, activation="gelu")


@pytest.fixture(scope="module")
def x():
    return jnp.asarray(np.random.default_rng(0).normal(size=(B, L, D)).astype(np.float32))


@pytest.fixture(scope="module")
def context():
    random = np.random.default_rng(1)
    return Context(
        self_bias=DistanceBias(jnp.asarray(random.normal(size=(2, 2 * L - 1)).astype(np.float32))),
        self_mask=Mask(causal=True),
        memory=jnp.asarray(random.normal(size=(B, M, D)).astype(np.float32)),
        memory_mask=Mask(jnp.array([[True, True, False], [True, True, True]])),
    )


@pytest.mark.parametrize(("norm_first", "norm"), [(True, "rms"), (False, "layer")])
def test_layer_is_its_sublayers_with_norms_and_residuals(make_params, x, context, norm_first, norm):
    config = replace(CONFIG, norm_first=norm_first, norm=norm, norm_epsilon=1e-3, attention_scale=0.7)
    layer = Layer(config, has_memory=True)
    params = make_params(layer, 0, x, LayerInputs(), context, True)
    attention = Attention(config)

    def apply(module, name, *args, **kwargs):
        return module.apply({"params": params[name]}, *args, **kwargs)

    def attend_to_self(y):
        return apply(attention, "self_attention", y, bias=context.self_bias, mask=context.self_mask)

    def attend_to_memory(y):
        key_value = apply(attention, "cross_attention", context.memory, method="project")
        return apply(attention, "cross_attention", y, key_value, mask=context.memory_mask)

    def feed_forward(y):
        return apply(FeedForward(config), "feed_forward", y)

    @jax.jit
    def sublayers(x):
        for name, sublayer in (
            ("self_attention", attend_to_self),
            ("cross_attention", attend_to_memory),
            ("feed_forward", feed_forward),
        ):
            norm_module = make_norm(norm, epsilon=1e-3, dtype=jnp.float32)
            if norm_first:
                x = x + sublayer(apply(norm_module, f"{name}_norm", x))
            else:
                x = apply(norm_module, f"{name}_norm", x + sublayer(x))
        return x

    got = jax.jit(lambda x: layer.apply({"params": params}, x, LayerInputs(), context, True)[0])(x)
    np.testing.assert_allclose(got, sublayers(x), atol=1e-5)


@pytest.mark.slow
def test_unrolled_layers_train_as_scanned_ones(monkeypatch, make_params, x):
    context = Context(self_mask=Mask(causal=True))
    stack = Stack(replace(CONFIG, dropout_rate=0.3, attention_dropout_rate=0.2), N)
    params = make_params(stack, 0, x, context)

    def lowered(stack, deterministic=False):
        def loss(params, x):
            rngs = {"dropout": jax.random.key(2)}
            return (stack.apply({"params": params}, x, context, deterministic=deterministic, rngs=rngs) ** 2).sum()

        return jax.jit(jax.value_and_grad(loss, argnums=(0, 1))).lower(params, x)

    def loops(program):
        return len(re.findall("stablehlo.while", program.as_text()))

    scanned, asked = lowered(stack), lowered(replace(stack, remat="unroll"))
    monkeypatch.setattr(transformer, "UNROLL_THRESHOLD", x.size)
    unrolled = lowered(stack)
    assert loops(scanned) == loops(unrolled) + 2 == loops(asked) + 2  # forward and backward
    # What is computed again must stay in a loop, and what is not trained gains nothing.
    assert loops(lowered(replace(stack, remat="full"))) == loops(scanned)
    assert loops(lowered(stack, deterministic=True)) == 2
    got, expected = (program.compile()(params, x) for program in (unrolled, scanned))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=2e-5, atol=2e-5), got, expected)


@pytest.mark.parametrize("norm_first", [True, False])
def test_stack_is_its_layers_one_after_another(make_params, x, context, norm_first):
    config = replace(CONFIG, norm_first=norm_first)
    stack = Stack(config, N, has_memory=True)
    params = make_params(stack, 0, x, context)
    layer = jax.jit(lambda p, x: Layer(config, True).apply({"params": p}, x, LayerInputs(), context, True)[0])
    expected = x
    for n in range(N):
        expected = layer(jax.tree.map(lambda leaf, n=n: leaf[n], params["layers"]), expected)
    if norm_first:
        norm = make_norm("layer", epsilon=config.norm_epsilon, dtype=jnp.float32)
        expected = norm.apply({"params": params["final_norm"]}, expected)
    else:
        assert "final_norm" not in params
    got = jax.jit(stack.apply)({"params": params}, x, context)
    np.testing.assert_allclose(got, expected, atol=1e-5)


def test_layers_start_differently_and_carry_the_axis_layers(x):
    params = jax.jit(Stack(CONFIG, N).init)(jax.random.key(0), x, Context())["params"]["layers"]
    kernel = params["feed_forward"]["wi"]["kernel"]
    assert kernel.names == ("layers", "embed", "mlp")
    values = np.asarray(nn.unbox(kernel))
    assert values.shape == (N, D, 7)
    for other in range(1, N):
        assert np.abs(values[0] - values[other]).min() > 0


def test_causality_by_zero_gradient(make_params, x, context):
    stack = Stack(CONFIG, N, has_memory=True)
    params = make_params(stack, 0, x, context)
    jacobian = jax.jit(jax.jacrev(lambda x: stack.apply({"params": params}, x, context).sum((0, 2))))(x)
    influence = np.abs(np.asarray(jacobian)).max((1, 3))  # [output position, input position]
    assert (influence[np.triu_indices(L, 1)] == 0).all()
    assert (influence[np.tril_indices(L)] > 1e-6).all()


@pytest.fixture(scope="module")
def gradients(make_params, x):
    """`gradients(remat, impl)`: those with dropout under a remat policy, and the program that computes them."""
    config = replace(CONFIG, dropout_rate=0.2, use_bias=False)
    context = Context(self_mask=Mask(causal=True))
    params = make_params(Stack(config, N), 0, x, context)

    @functools.cache
    def gradient(remat, impl=None):
        def loss(params):
            rngs = {"dropout": jax.random.key(0, impl=impl)}
            out = Stack(config, N, remat=remat).apply({"params": params}, x, context, deterministic=False, rngs=rngs)
            return (out**3).sum()

        traced = jax.jit(jax.grad(loss)).trace(params)
        return traced.lower().compile()(params), str(traced.jaxpr)

    return gradient


@pytest.mark.parametrize(
    ("remat", "impl"),
    [
        ("dots", None),
        *(pytest.param(remat, None, marks=pytest.mark.slow) for remat in ("unroll", "full")),
        pytest.param("full", HASH, marks=pytest.mark.slow),
    ],
)
def test_remat_changes_no_gradient(gradients, remat, impl):
    expected, got = gradients("none", impl)[0], gradients(remat, impl)[0]
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=5e-4), expected, got)
    assert max(jnp.abs(leaf).max() for leaf in jax.tree.leaves(got)) > 1


@pytest.mark.slow
def test_remat_computes_again_what_it_says(gradients):
    programs = {remat: gradients(remat, None)[1] for remat in ("none", "dots", "full")}
    products = {remat: len(re.findall(r"= dot_general\[", program)) for remat, program in programs.items()}
    erfs = {remat: len(re.findall(r"= erf ", program)) for remat, program in programs.items()}
    assert products["none"] <= products["dots"] < products["full"]
    assert erfs["none"] < erfs["dots"]


def test_dots_keeps_dense_outputs_with_their_biases(make_params, x):
    """Six a layer, which are added again where nothing is kept."""

    def additions(remat, use_bias):
        config = replace(CONFIG, use_bias=use_bias)
        params = make_params(Stack(config, N), 0, x, Context())
        stack = Stack(config, N, remat=remat)
        loss = jax.grad(lambda params: stack.apply({"params": params}, x, Context(), deterministic=False).sum())
        return len(re.findall(r"= add ", str(jax.make_jaxpr(loss)(params))))

    of_biases = {remat: additions(remat, True) - additions(remat, False) for remat in ("none", "dots", "full")}
    assert of_biases["none"] == of_biases["dots"] == 6 and of_biases["full"] >= 11


def test_dropout_depends_on_the_key_alone(make_params, x):
    config = replace(CONFIG, dropout_rate=0.5, attention_dropout_rate=0.5, norm="rms", use_bias=False)
    stack = Stack(config, N)
    params = make_params(stack, 0, x, Context())
    apply = jax.jit(
        lambda key: stack.apply({"params": params}, x, Context(), deterministic=False, rngs={"dropout": key})
    )
    first, again, other = apply(jax.random.key(0)), apply(jax.random.key(0)), apply(jax.random.key(1))
    np.testing.assert_array_equal(first, again)
    assert jnp.abs(first - other).max() > 0.1
    assert jnp.abs(first - stack.apply({"params": params}, x, Context())).max() > 0.1


@pytest.mark.parametrize("rate", ["dropout_rate", "attention_dropout_rate", "mlp_dropout_rate"])
@pytest.mark.parametrize("share", mostly_slow([False, True], True))
def test_each_rate_drops_something_and_positions_may_share_it(make_params, x, rate, share):
    """Equal positions stay equal where they drop the same features and keys."""
    layer = Layer(replace(CONFIG, **{rate: 0.5}, positions_share_dropout=share))
    params = make_params(layer, 0, x, LayerInputs(), Context(), True)

    @jax.jit
    def run(x, key):
        return layer.apply({"params": params}, x, LayerInputs(), Context(), False, rngs={"dropout": key})[0]

    equal = jnp.broadcast_to(x[:, :1], x.shape)
    first, other = np.asarray(run(equal, jax.random.key(0))), np.asarray(run(equal, jax.random.key(1)))
    assert np.abs(first - other).max() > 0.01
    apart = np.abs(first - first[:, :1]).max()
    assert apart < 1e-6 if share else apart > 0.01


@pytest.mark.parametrize("shared", mostly_slow([False, True], True))
def test_outputs_are_those_of_every_layer(make_params, x, shared):
    config, context = replace(CONFIG, norm_first=False), Context(self_mask=Mask(causal=True))
    stack = Stack(config, N, shared=shared)
    params = make_params(stack, 0, x, context)
    layer = jax.jit(lambda p, x: Layer(config).apply({"params": p}, x, LayerInputs(), context, True)[0])
    expected = [x]
    for n in range(N):
        own = params["layers"] if shared else jax.tree.map(lambda leaf, n=n: leaf[n], params["layers"])
        expected.append(layer(own, expected[-1]))
    got = jax.jit(lambda p: stack.apply({"params": p}, x, context, method="outputs"))(params)
    np.testing.assert_allclose(got, jnp.stack(expected[1:]), atol=1e-5)
    last = jax.jit(stack.apply)({"params": params}, x, context)
    np.testing.assert_allclose(got[-1], last, atol=1e-5)


def test_the_outputs_of_a_pre_ln_stack_are_not_normed(make_params, x):
    stack = Stack(replace(CONFIG, norm_epsilon=1e-3), N)
    params = make_params(stack, 0, x, Context())
    last, out = jax.jit(
        lambda params: (
            stack.apply({"params": params}, x, Context(), method="outputs")[-1],
            stack.apply({"params": params}, x, Context()),
        )
    )(params)
    norm = make_norm("layer", epsilon=1e-3, dtype=jnp.float32)
    np.testing.assert_allclose(norm.apply({"params": params["final_norm"]}, last), out, atol=1e-5)
    assert jnp.abs(out - last).max() > 0.1


def test_shared_layers_have_one_set_of_parameters_without_the_axis_layers(x):
    def shapes(module, *args):
        return jax.eval_shape(lambda: module.init(jax.random.key(0), x, *args))["params"]

    params = shapes(Stack(CONFIG, N, shared=True), Context())["layers"]
    assert params["feed_forward"]["wi"]["kernel"].names == ("embed", "mlp")
    alone = shapes(Layer(CONFIG), LayerInputs(), Context(), True)
    assert jax.tree.map(jnp.shape, nn.unbox(params)) == jax.tree.map(jnp.shape, nn.unbox(alone))


def test_shared_layers_drop_differently(make_params, x):
    """Under zero kernels what a pre-LN layer adds is its dropped biases, and so its mask."""
    stack = Stack(replace(CONFIG, dropout_rate=0.5), N, shared=True)
    params = make_params(stack, 0, x, Context())
    params = jax.tree_util.tree_map_with_path(
        lambda path, leaf: jnp.zeros_like(leaf) if path[-1].key == "kernel" else jnp.ones_like(leaf), params
    )
    rngs = {"dropout": jax.random.key(1)}
    run = jax.jit(
        lambda x: stack.apply({"params": params}, x, Context(), deterministic=False, rngs=rngs, method="outputs")
    )
    added = np.diff(np.concatenate([x[None], run(x)]), axis=0).round(3)
    assert set(np.unique(added)) == {0.0, 2.0, 4.0}
    for one in range(N):
        for other in range(one):
            assert 0.2 < np.mean(added[one] != added[other]) < 0.9


def test_remat_changes_no_output_that_is_kept(make_params, x):
    config = replace(CONFIG, norm_first=False)
    params = make_params(Stack(config, N), 0, x, Context())

    def gradient(remat):
        def loss(params):
            return (Stack(config, N, remat=remat).apply({"params": params}, x, Context(), method="outputs") ** 3).sum()

        return str(jax.make_jaxpr(jax.grad(loss))(params)), jax.jit(jax.grad(loss))(params)

    (plain, expected), (again, got) = gradient("none"), gradient("full")
    assert len(re.findall(r"= erfc? ", again)) > len(re.findall(r"= erfc? ", plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3), expected, got)


@pytest.mark.parametrize(("norm_first", "shared"), [pytest.param(True, False, marks=pytest.mark.slow), (False, True)])
def test_a_cache_gives_what_the_whole_row_gives(make_params, x, context, norm_first, shared):
    """Three sequences for each of two inputs, in steps of two tokens and one."""
    stack = Stack(replace(CONFIG, norm_first=norm_first), N, has_memory=True, shared=shared)
    params = {"params": make_params(stack, 0, x, context)}
    start = {"memory": context.memory, "max_length": L, "method": "start_decoding"}
    cache = jax.jit(lambda valid: stack.apply(params, valid, jnp.zeros((D, 1)), **start).repeat(3))(
        context.memory_mask.valid
    )
    rows = jnp.asarray(np.random.default_rng(2).normal(size=(3 * B, L, D)).astype(np.float32))

    @jax.jit
    def step(rows, cache, index):
        seen = jnp.arange(L)[None, :] <= index + jnp.arange(rows.shape[1])[:, None]
        return stack.apply(params, rows, cache, position=index, mask=seen[None, None], method="decode")

    outputs = []
    for start, end in ((0, 2), (2, 4), (4, 5)):
        out, cache = step(rows[:, start:end], cache, jnp.int32(start))
        outputs.append(out)
    assert cache.memory[0].key.shape[0] == B, "a memory is stored once, whoever looks at it"
    whole = replace(
        context,
        self_bias=None,
        memory=jnp.repeat(context.memory, 3, axis=0),
        memory_mask=Mask(jnp.repeat(context.memory_mask.valid, 3, axis=0)),
    )
    expected = jax.jit(stack.apply)(params, rows, whole)
    np.testing.assert_allclose(jnp.concatenate(outputs, axis=1), expected, atol=1e-5)

    # A sequence goes on from another one's past.
    taken = jnp.array([1, 1, 0, 5, 3, 3])
    after, _ = step(rows[:, 4:], cache.take(taken), jnp.int32(4))
    swapped = jax.jit(stack.apply)(params, jnp.concatenate([rows[taken, :4], rows[:, 4:]], axis=1), whole)
    np.testing.assert_allclose(after[:, 0], swapped[:, 4], atol=1e-5)
    assert jnp.abs(after[:, 0] - expected[:, 4]).max() > 0.1


@pytest.mark.parametrize("shared", mostly_slow([False, True], True))
def test_a_stack_sows_the_weights_of_each_layer(make_params, x, context, shared):
    stack = Stack(CONFIG, N, has_memory=True, remat="full", shared=shared)
    params = make_params(stack, 0, x, context)
    out, sown = jax.jit(partial(stack.apply, mutable=["intermediates"]))({"params": params}, x, context)
    np.testing.assert_allclose(out, jax.jit(stack.apply)({"params": params}, x, context), atol=1e-6)
    layer, y = Layer(CONFIG, has_memory=True), x
    run = jax.jit(lambda params, y: layer.apply(params, y, LayerInputs(), context, True, mutable=["intermediates"]))
    for n in range(N):
        of_layer = params["layers"] if shared else jax.tree.map(lambda leaf, n=n: leaf[n], params["layers"])
        (y, _), expected = run({"params": of_layer}, y)
        for name in ("self_attention", "cross_attention"):
            (weights,), (ours,) = (
                tree[name]["weights"] for tree in (expected["intermediates"], sown["intermediates"]["layers"])
            )
            np.testing.assert_allclose(ours[n], weights, atol=1e-6)


def test_layer_scale_multiplies_the_branches(make_params, x):
    """Ones change nothing, zeros leave the residual stream alone."""
    plain, scaled = Layer(CONFIG), Layer(replace(CONFIG, layer_scale=0.25))
    params = make_params(plain, 0, x, LayerInputs(), Context(), True)
    initialize = jax.jit(scaled.init, static_argnums=4)
    initial = nn.unbox(initialize(jax.random.key(0), x, LayerInputs(), Context(), True)["params"])
    names = set(initial) - set(params)
    assert names == {"self_attention_scale", "feed_forward_scale"}
    assert all((initial[name]["scale"] == jnp.full(D, 0.25)).all() for name in names)

    @jax.jit
    def run(value):
        scales = {name: {"scale": jnp.full(D, value)} for name in names}
        return scaled.apply({"params": params | scales}, x, LayerInputs(), Context(), True)[0]

    expected = jax.jit(plain.apply, static_argnums=4)({"params": params}, x, LayerInputs(), Context(), True)[0]
    np.testing.assert_allclose(run(1.0), expected, rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(run(0.0), x)
    assert jnp.abs(run(0.5) - run(1.0)).max() > 0.01


def test_stochastic_depth_skips_branches_of_whole_rows():
    """Half of the rows skip each branch of the last of two layers, and none one of the first."""
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1, D)).astype(np.float32)).repeat(256, 0).repeat(2, 1)
    config = replace(CONFIG, drop_path_rate=0.5)
    stack = Stack(config, 2)
    params = nn.unbox(jax.jit(stack.init)(jax.random.key(0), rows[:1], Context())["params"])
    outputs = jax.jit(lambda key: stack.apply(
        {"params": params}, rows, Context(), deterministic=False, rngs={"dropout": key}, method="outputs"
    ))  # fmt: skip
    first, last = np.asarray(outputs(jax.random.key(0)))
    np.testing.assert_allclose(first, np.broadcast_to(first[:1], first.shape), atol=1e-6)
    # No branch, one of the two, or both; each is added twice.
    kinds, counts = np.unique(last.round(4), axis=0, return_counts=True)
    assert len(kinds) == 4
    assert counts.min() > 40
    second = {"params": jax.tree.map(lambda leaf: leaf[1], params["layers"])}

    def attend(layer, x):
        return layer.self_attention(layer.self_attention_norm(x))

    attended = jax.jit(partial(Layer(CONFIG).apply, method=attend))(second, first[:1])
    for value in (first, first + 2 * attended):
        assert 0.15 < (np.abs(last - value).max((1, 2)) < 1e-4).mean() < 0.35


@pytest.mark.parametrize(
    ("schedule", "shares"),
    [("linear", [0.0, 0.3, 0.6]), pytest.param("constant", [0.6, 0.6, 0.6], marks=pytest.mark.slow)],
)
def test_the_share_of_skipped_branches_goes_with_depth_or_is_constant(schedule, shares):
    """A row that skips both branches of a layer leaves it as it came."""
    rows = jnp.asarray(np.random.default_rng(0).normal(size=(1, 1, D)).astype(np.float32)).repeat(512, 0).repeat(2, 1)
    stack = Stack(replace(CONFIG, drop_path_rate=0.6, drop_path_schedule=schedule), 3)
    params = nn.unbox(jax.jit(stack.init)(jax.random.key(0), rows[:1], Context())["params"])
    options = {"deterministic": False, "rngs": {"dropout": jax.random.key(0)}, "method": "outputs"}
    outputs = jax.jit(lambda: stack.apply({"params": params}, rows, Context(), **options))()
    states = jnp.concatenate([rows[None], outputs])
    unchanged = (states[1:] == states[:-1]).all((2, 3)).mean(1)
    np.testing.assert_allclose(unchanged, np.square(shares), atol=0.08)


@pytest.mark.slow
def test_stochastic_depth_is_the_same_however_layers_are_compiled(make_params, x):
    """In a loop, unrolled and computed again; and none where nothing is random or the rate is 0."""
    config = replace(CONFIG, drop_path_rate=0.6, layer_scale=0.5)
    params = make_params(Stack(config, N), 0, x, Context())

    def gradient(config, remat, deterministic=False):
        def loss(params):
            rngs = {"dropout": jax.random.key(3)}
            stack = Stack(config, N, remat=remat)
            return (stack.apply({"params": params}, x, Context(), deterministic=deterministic, rngs=rngs) ** 3).sum()

        return jax.jit(jax.grad(loss))(params)

    expected, plain = gradient(config, "none"), gradient(config, "none", deterministic=True)
    for remat in ("unroll", "full"):
        jax.tree.map(partial(np.testing.assert_allclose, rtol=1e-4, atol=1e-4), gradient(config, remat), expected)
    jax.tree.map(np.testing.assert_array_equal, gradient(replace(config, drop_path_rate=0.0), "none"), plain)
    assert max(jnp.abs(a - b).max() for a, b in zip(*map(jax.tree.leaves, (expected, plain)), strict=True)) > 0.1


def test_what_is_not_used_costs_nothing(make_params, x):
    """Without rates and factors the program is that of a stack that knows neither."""
    params = make_params(Stack(CONFIG, N), 0, x, Context())

    def program(config, deterministic):
        def run(params):
            rngs = {"dropout": jax.random.key(3)}
            return Stack(config, N).apply({"params": params}, x, Context(), deterministic=deterministic, rngs=rngs)

        return jax.jit(run).lower(params).as_text()

    plain, dropping = program(CONFIG, False), replace(CONFIG, drop_path_rate=0.1)
    assert "threefry" not in plain
    assert program(dropping, True) == program(CONFIG, True)
    assert "threefry" in program(dropping, False)
