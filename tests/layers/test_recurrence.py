"""Recurrent layers, against PyTorch's, and the loop over time, against jax's."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.layers.recurrence import Cell, Recurrent, RecurrentStack, scan_time
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh, shardings, use_mesh

from ..slow import mostly_slow

BATCH, LENGTH, SIZE, UNITS, LAYERS = 3, 7, 5, 4, 2
LENGTHS = np.array([7, 4, 1])
VALID = np.arange(LENGTH) < LENGTHS[:, None]


@pytest.fixture(scope="module")
def x():
    return jnp.asarray(np.random.default_rng(0).standard_normal((BATCH, LENGTH, SIZE)), jnp.float32)


def name_of(cell):
    return f"{cell.kind} {cell.projection or ''}{cell.reset}" if isinstance(cell, Cell) else None


def params_of(theirs, cell, both):
    """PyTorch's parameters as ours: of an LSTM its two biases are one."""
    params = {}
    for direction, suffix in (("forward", ""), ("backward", "_reverse"))[: 1 + both]:
        for n in range(LAYERS):

            def get(name, n=n, suffix=suffix):
                return getattr(theirs, f"{name}_l{n}{suffix}").detach().numpy().T

            layer = {"input": get("weight_ih"), "bias": get("bias_ih"), "recurrent": get("weight_hh")}
            if cell.kind == "gru":
                layer["own_bias"] = get("bias_hh")
            else:
                layer["bias"] = layer["bias"] + get("bias_hh")
            if cell.projection:
                layer["projection"] = get("weight_hr")
            params[f"{direction}_{n}"] = {"weights": layer}
    return params


@pytest.mark.parametrize("both", [False, True])
@pytest.mark.parametrize("cell", [Cell("lstm", UNITS), Cell("lstm", UNITS, 3), Cell("gru", UNITS)], ids=name_of)
def test_they_are_torchs_with_padding_states_and_gradients(torch, x, cell, both):
    torch.manual_seed(0)
    options = {"proj_size": cell.projection} if cell.projection else {}
    theirs = (torch.nn.LSTM if cell.kind == "lstm" else torch.nn.GRU)(
        SIZE, UNITS, LAYERS, batch_first=True, bidirectional=both, **options
    )
    stack, params = RecurrentStack((cell,) * LAYERS, (both,) * LAYERS), params_of(theirs, cell, both)
    shapes = jax.eval_shape(stack.init, jax.random.key(0), x)["params"]
    assert jax.tree.map(np.shape, nn.unbox(shapes)) == jax.tree.map(np.shape, params)

    inputs = torch.tensor(np.asarray(x), requires_grad=True)
    packed = torch.nn.utils.rnn.pack_padded_sequence(inputs, torch.tensor(LENGTHS), batch_first=True)
    outputs, last = theirs(packed)
    outputs = torch.nn.utils.rnn.pad_packed_sequence(outputs, batch_first=True)[0]
    last = [last] if cell.kind == "gru" else last
    weights = np.random.default_rng(1).standard_normal(outputs.shape).astype(np.float32)
    ((outputs * torch.tensor(weights)).sum() + sum((one**2).sum() for one in last)).backward()

    @jax.jit
    def loss(params, x):
        outputs, states = stack.apply({"params": params}, x, jnp.asarray(VALID))
        total = (outputs * weights).sum() + sum((leaf**2).sum() for leaf in jax.tree.leaves(states))
        return total, (outputs, states)

    gradients, (ours, states) = jax.jit(jax.grad(loss, argnums=(0, 1), has_aux=True))(params, x)
    np.testing.assert_allclose(ours, outputs.detach().numpy(), atol=1e-6)
    states = [one for layer in states for one in layer]
    np.testing.assert_allclose([one.output for one in states], last[0].detach().numpy(), atol=1e-6)
    if cell.kind == "lstm":
        np.testing.assert_allclose([one.memory for one in states], last[1].detach().numpy(), atol=1e-6)
    np.testing.assert_allclose(gradients[1], inputs.grad.numpy(), atol=2e-6)
    for parameter in theirs.parameters():
        parameter.data = parameter.grad
    expected = params_of(theirs, cell, both)
    if cell.kind == "lstm":  # the gradient of each of the two biases is that of the sum
        for layer in expected.values():
            layer["weights"]["bias"] = layer["weights"]["bias"] / 2
    jax.tree.map(lambda ours, theirs: np.testing.assert_allclose(ours, theirs, atol=5e-6), gradients[0], expected)


CELLS = [
    Cell("lstm", UNITS, 3, memory_clip=0.2, output_clip=0.1),
    Cell("gru", UNITS),
    Cell("gru", UNITS, reset="before"),
]


@pytest.fixture(scope="module", params=CELLS, ids=name_of)
def layer(request, x):
    module = Recurrent(request.param, nn.initializers.normal(1.0))
    return module, nn.unbox(module.init(jax.random.key(2), x)["params"])


def test_it_goes_on_from_a_state(layer, x):
    module, params = layer
    whole, last = module.apply({"params": params}, x)
    first, state = module.apply({"params": params}, x[:, :3])
    second, end = module.apply({"params": params}, x[:, 3:], None, state)
    np.testing.assert_allclose(jnp.concatenate([first, second], axis=1), whole, atol=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), end, last)


def test_padding_on_either_side_changes_nothing(layer, x):
    module, params = layer
    alone, last = module.apply({"params": params}, x[1:2, :4])
    for before, after in ((0, 3), (2, 1)):
        padded = jnp.pad(x[1:2, :4], ((0, 0), (before, after), (0, 0)), constant_values=9.0)
        valid = jnp.pad(jnp.ones((1, 4), bool), ((0, 0), (before, after)))
        outputs, state = module.apply({"params": params}, padded, valid)
        np.testing.assert_allclose(outputs[:, before : before + 4], alone, atol=1e-6)
        assert np.abs(np.asarray(outputs)[~np.asarray(valid)]).max() == 0
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, atol=1e-6), state, last)


def test_clipped_numbers_stay_within_their_bounds(x):
    module = Recurrent(CELLS[0], nn.initializers.normal(5.0))
    params = module.init(jax.random.key(0), x)["params"]
    outputs, state = module.apply({"params": params}, x)
    assert np.abs(outputs).max() == np.float32(0.1)
    assert np.abs(state.memory).max() == np.float32(0.2)


@pytest.mark.parametrize("kind", ["lstm", "gru"])
def test_biases_begin_with_ones_for_forgetting_alone(kind):
    cell = Cell(kind, UNITS)
    params = nn.unbox(Recurrent(cell).init(jax.random.key(0), jnp.zeros((1, 2, SIZE))))["params"]["weights"]
    biases = {name: np.asarray(value) for name, value in params.items() if "bias" in name}
    assert biases.keys() == ({"bias"} if kind == "lstm" else {"bias", "own_bias"})
    expected = np.zeros(cell.num_gates * UNITS)
    expected[UNITS : 2 * UNITS] = kind == "lstm"
    assert all((value == expected).all() for value in biases.values())


def test_the_reverse_direction_is_the_reversed_text(layer, x):
    module, params = layer
    forward, _ = module.apply({"params": params}, x[:, ::-1])
    backward, _ = module.clone(reverse=True).apply({"params": params}, x)
    np.testing.assert_allclose(backward[:, ::-1], forward, atol=1e-6)


def test_a_program_is_as_long_for_any_number_of_steps(layer):
    module, params = layer

    def program(length):
        inputs = jax.ShapeDtypeStruct((BATCH, length, SIZE), jnp.float32)
        loss = jax.grad(lambda params, x: module.apply({"params": params}, x)[0].sum())
        return len(jax.jit(loss).lower(params, inputs).as_text().splitlines())

    assert program(4) == program(400)


def a_step(product, shared, state, x):
    state = jnp.tanh(product("own", state) + product("input", x) + shared["bias"][None])
    return state, state**2


@pytest.mark.parametrize("reverse", [False, True])
def test_gradients_of_a_loop_over_time_are_jaxs(reverse):
    random = np.random.default_rng(3)
    weights = {"own": random.normal(size=(4, 4)), "input": random.normal(size=(5, 4))}
    arrays = weights, {"bias": random.normal(size=4)}, random.normal(size=(2, 4)), random.normal(size=(6, 2, 5))
    arrays = jax.tree.map(jnp.float32, (*arrays, {"own": random.normal(size=(6, 2, 4))}))

    def loss(scan):
        def of(arrays):
            state, ys = scan(*arrays)
            return (state**3).sum() + (ys * jnp.arange(6.0)[:, None, None]).sum()

        return jax.jit(jax.value_and_grad(of))

    def plain(weights, shared, state, xs, added):
        def body(state, x):
            x, added = x
            return a_step(lambda name, vector: vector @ weights[name] + added.get(name, 0), shared, state, x)

        return jax.lax.scan(body, state, (xs, added), reverse=reverse)

    def ours(*arrays):
        return scan_time(a_step, *arrays[:-1], added=arrays[-1], reverse=reverse)

    np.testing.assert_allclose(ours(*arrays)[1], plain(*arrays)[1], rtol=1e-6)
    value, gradients = loss(ours)(arrays)
    expected, theirs = loss(plain)(arrays)
    assert float(value) == pytest.approx(float(expected), rel=1e-6)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5), gradients, theirs)


def test_no_gradient_as_large_as_a_matrix_is_summed_step_by_step():
    def loss(weights):
        arrays = {"bias": jnp.zeros(4)}, jnp.ones((2, 4)), jnp.ones((6, 2, 5))
        return scan_time(a_step, weights, *arrays, reverse=False)[0].sum()

    weights = {"own": jnp.ones((4, 4)), "input": jnp.ones((5, 4))}
    (scans,) = [
        equation
        for equation in jax.make_jaxpr(jax.grad(loss))(weights).eqns
        if equation.primitive.name == "scan" and equation.params["reverse"]
    ]
    # What is stacked has the steps in front; what one step hands to the next has not.
    given = {one.aval.shape for one in scans.outvars}
    assert (6, 2, 4) in given and (2, 4) in given
    assert not given & {(5, 4), (4, 4)}


def test_the_loop_keeps_products_and_states_alone(x):
    """For the gradients; gates and their slopes are computed again from these."""
    module = Recurrent(Cell("lstm", UNITS))
    params = nn.unbox(module.init(jax.random.key(0), x)["params"])
    program = jax.make_jaxpr(jax.grad(lambda params: module.apply({"params": params}, x)[0].sum()))(params)
    (scan,) = [one for one in program.eqns if one.primitive.name == "scan" and not one.params["reverse"]]
    stacked = [one.aval.shape for one in scan.outvars if one.aval.shape[:1] == (LENGTH,)]
    # The products; the output as it is, as what the next product reads, and as a state; the memory.
    assert sum(size[-1] for size in stacked) <= 4 * UNITS + 3 * UNITS + UNITS, stacked
    # What the inputs add to the gates is in the products, and has their gradient.
    (scan,) = [one for one in program.eqns if one.primitive.name == "scan" and one.params["reverse"]]
    for arrays in (scan.invars, scan.outvars):
        assert [one.aval.shape for one in arrays].count((LENGTH, BATCH, 4 * UNITS)) == 1


def test_a_product_has_a_name_of_its_own():
    def step(product, shared, state, x):
        return product("own", product("own", state)), x

    def loss(weights):
        return scan_time(step, {"own": weights}, None, jnp.ones((2, 4)), jnp.ones((3, 2)), reverse=False)[0].sum()

    with pytest.raises(ValueError, match="multiplies by 'own' twice"):
        jax.grad(loss)(jnp.ones((4, 4)))


@pytest.mark.parametrize(
    "shape",
    mostly_slow([MeshShape(2, 2, tensor=2), MeshShape(1, 8)], MeshShape(2, 2, tensor=2)),
    ids=["data, fsdp, tensor", "fsdp"],
)
@pytest.mark.parametrize("cell", [Cell("lstm", 16, 8), Cell("gru", 8, reset="before")], ids=name_of)
def test_eight_devices_compute_what_one_does(cell, shape):
    module = Recurrent(cell, nn.initializers.normal(0.5))
    inputs = jnp.asarray(np.random.default_rng(4).standard_normal((8, LENGTH, 8)), jnp.float32)
    boxed = module.init(jax.random.key(2), inputs)["params"]

    def loss(params, x):
        outputs, state = module.apply({"params": params}, x)
        return (outputs**2).sum() + (state.output**3).sum()

    expected = jax.jit(jax.grad(loss))(nn.unbox(boxed), inputs)
    mesh = make_mesh(shape, jax.devices())
    on_mesh = jax.jit(use_mesh(mesh)(jax.grad(loss)), in_shardings=(shardings(mesh, boxed), batch_sharding(mesh)))
    gradients = on_mesh(nn.unbox(boxed), inputs)
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5), gradients, expected)
