"""One experiment in other sizes, for other numbers of tokens."""

from dataclasses import replace

import pytest

from t5x_lite.errors import InputError
from t5x_lite.models import ElmoConfig, GptConfig, T5Config
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import CosineDecay, InverseSqrt, LinearDecay, StepDecay
from t5x_lite.scaling import training_flops
from t5x_lite.scaling.grid import Size, parse_amount, resized, scaled
from t5x_lite.training import Checkpointing


def test_heads_stay_as_wide():
    gpt = resized(GptConfig(), Size(1024, 24))
    assert (gpt.embed_dim, gpt.num_heads, gpt.mlp_dim, gpt.num_layers) == (1024, 16, 4096, 24)
    t5 = resized(T5Config(), Size(768, 12))
    assert (t5.embed_dim, t5.num_heads, t5.head_dim, t5.mlp_dim) == (768, 12, 64, 3072)
    assert t5.num_encoder_layers == t5.num_decoder_layers == 12
    wide = resized(T5Config(embed_dim=512, num_heads=16), Size(256, 2))  # twice as wide together as the model
    assert (wide.num_heads, wide.head_dim) == (8, 64)
    with pytest.raises(InputError, match="heads of 64 do not fit that width; choose multiples of 64"):
        resized(GptConfig(), Size(100, 2))
    with pytest.raises(InputError, match="ElmoConfig has others; train several sizes of it by t5x-lite sweep"):
        resized(ElmoConfig(), Size(512, 2))


def test_steps_and_schedules(tiny):
    schedule = LinearDecay(1e-3, warmup_steps=10, total_steps=101)
    experiment = replace(tiny, optimizer=AdamW(schedule), steps=100)
    size = Size(tiny.model.embed_dim, 1)
    _, per_step = tiny.objective.layout.throughput(tiny.batch_size)
    longer = scaled(experiment, size, tokens=1000 * per_step)
    assert (longer.steps, longer.optimizer.schedule) == (1000, LinearDecay(1e-3, warmup_steps=100, total_steps=1010))
    assert longer.evaluation.every == 100
    rare = replace(experiment, checkpoints=Checkpointing(every=0))
    assert scaled(rare, size, tokens=1000 * per_step).checkpoints.every == 0  # at the end alone
    by_flops = scaled(experiment, size, flops=50 * training_flops(longer))
    assert by_flops.steps == 50
    with pytest.raises(InputError, match=r"would train 0.1 steps of \d+ tokens; choose an amount of one or more"):
        scaled(experiment, size, tokens=per_step / 10)


def test_stretched_schedules():
    """Each passes through the same rates, later."""
    for schedule in (
        LinearDecay(1e-3, 10, 100),
        CosineDecay(1e-3, 10, 100),
        StepDecay(0.1, warmup_steps=10, boundaries=(30, 60)),
    ):
        longer = schedule.stretched(3)
        for step in (5, 10, 29, 45, 70, 99):
            assert float(longer.learning_rate(3 * step)) == pytest.approx(float(schedule.learning_rate(step)), rel=1e-5)
    assert InverseSqrt().stretched(3) == InverseSqrt()
    assert LinearDecay(1e-3, 10, 100).stretched(1e-6) == LinearDecay(1e-3, 1, 2)


@pytest.mark.parametrize("text", ["64", "0x2", "64x0", "-64x2", "64x2x2", "axb", ""])
def test_bad_sizes(text):
    with pytest.raises(InputError, match="is not WIDTHxDEPTH"):
        Size.parse(text)


@pytest.mark.parametrize("text", ["", "x", "-1", "0", "1Z", "nan", "inf", "1e99", "1e", "M"])
def test_bad_amounts(text):
    with pytest.raises(InputError, match=r"--tokens has '.*', which is not a positive number"):
        parse_amount("tokens", text)
