import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.errors import InputError


def test_calling_it_gives_the_logits_of_the_pure_function(model, t5_logits):
    inputs, targets = ["Zürich", "a"], ["ab", "c"]
    logits = model(inputs, targets)
    ids = np.array([[93, 198, 191, 117, 108, 102, 107, 1], [100, 1, 0, 0, 0, 0, 0, 0]], np.int32)
    expected = t5_logits(ids, np.array([[0, 100, 101], [0, 102, 1]], np.int32), ids != 0)
    np.testing.assert_allclose(logits, expected, atol=1e-4)
    from_ids = model(jnp.asarray(ids), jnp.array([[100, 101, 1], [102, 1, 0]]))
    np.testing.assert_array_equal(from_ids, logits)


def test_generate(model):
    one = model.generate("abc", max_length=6)
    assert isinstance(one, str)
    several = model.generate(["Something longer.", "abc"], max_length=6)
    assert several[1] == one
    ids = np.array([[100, 101, 102, 1]], np.int32)
    generated = np.asarray(model.generate_ids(jnp.asarray(ids), max_length=6))
    assert generated.shape == (1, 6)
    assert model.tokenizer.decode(generated[0].tolist()) == one


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(([],), "texts=\\[\\]"), (("a", 0), "max_length=0"), (("<extra_id_100>",), "<extra_id_100>")],
)
def test_what_generate_refuses(model, arguments, message):
    with pytest.raises(InputError, match=message):
        model.generate(arguments[0], **({"max_length": arguments[1]} if len(arguments) > 1 else {}))


@pytest.mark.parametrize("method", ["fill_mask", "encode", "detect_replacements"])
def test_what_an_encoder_decoder_cannot_do(model, method):
    with pytest.raises(InputError, match=f"a T5Config cannot {method}; use generate, generate_ids and score"):
        getattr(model, method)("a")
