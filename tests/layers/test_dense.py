import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.layers.dense import multiply


@pytest.mark.parametrize(("inputs", "features"), [(5, 8), (8, 5), (5, 5), (5, 1), (1, 5)])
def test_gradients_are_those_of_a_product(inputs, features):
    x, kernel, of_y = (
        jax.random.normal(jax.random.key(i), shape)
        for i, shape in enumerate([(2, 7, inputs), (inputs, features), (2, 7, features)])
    )
    y, differentiate = jax.vjp(lambda x, kernel: multiply(x, kernel, ("embed", "mlp"), jnp.float32), x, kernel)
    of_x, of_kernel = differentiate(of_y)
    np.testing.assert_allclose(y, np.einsum("brI,IO->brO", x, kernel), atol=1e-5)
    np.testing.assert_allclose(of_x, np.einsum("brO,IO->brI", of_y, kernel), atol=1e-5)
    np.testing.assert_allclose(of_kernel, np.einsum("brI,brO->IO", x, of_y), atol=1e-5)


@pytest.mark.parametrize(("inputs", "features"), [(24, 40), (40, 24)])
def test_the_gradient_of_a_kernel_is_a_plain_and_wide_product(inputs, features):
    def of_kernel(x, of_y):
        kernel = jnp.ones((inputs, features))
        return jax.vjp(lambda kernel: multiply(x, kernel, ("embed", "mlp"), jnp.float32), kernel)[1](of_y)

    program = jax.jit(of_kernel).lower(jnp.ones((96, inputs)), jnp.ones((96, features))).compile().as_text()
    ((out, left, right),) = re.findall(
        r"= f32\[([\d,]+)\]\S* dot\(.*lhs_contracting_dims={(\d)}, rhs_contracting_dims={(\d)}", program
    )
    assert (out, left, right) == ("24,40", "1", "0")
