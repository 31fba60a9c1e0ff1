import pytest

from t5x_lite.objectives import DropTokens

EOS = 1


def test_every_token_is_on_one_side_in_order(corrupted):
    objective = DropTokens(41, noise_density=0.15)
    raw, inputs, targets = corrupted(objective)
    noise = objective.num_noise_tokens
    assert objective.raw_length - noise == 40
    assert noise == round(0.15 * objective.raw_length) == objective.target_length - 1
    for row, left, dropped in zip(raw.tolist(), inputs.tolist(), targets.tolist(), strict=True):
        assert left[-1] == dropped[-1] == EOS
        assert [i for i in row if i not in dropped] == left[:-1]
        assert [i for i in row if i in dropped] == dropped[:-1]


@pytest.mark.parametrize("input_length", [4, 5, 64, 512])
@pytest.mark.parametrize("noise_density", [0.1, 0.15, 0.5, 0.9])
def test_inputs_are_filled_exactly(input_length, noise_density):
    objective = DropTokens(input_length, noise_density=noise_density)
    lengths = range(objective.raw_length, objective.raw_length + 2)
    left = [n - min(max(round(n * noise_density), 1), n - 1) + 1 for n in lengths]
    assert left[0] == input_length
    assert left[1] >= input_length
