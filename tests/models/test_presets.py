"""Every published model has its published number of parameters (T5's are in `test_t5`)."""

import re
from dataclasses import fields, replace

import pytest

from t5x_lite.models import PRESETS, AlbertConfig, ElectraPairConfig, EncoderConfig, num_params
from t5x_lite.models.t5 import T5LayerConfig

from ..slow import mostly_slow

# Of the published checkpoints: encoder and pooler, and for ELECTRA the head; SpanBERT's are BERT's.
PUBLISHED = {
    "bert-tiny": 4_385_920,
    "bert-base-uncased": 109_482_240,
    "bert-base-cased": 108_310_272,
    "bert-base-multilingual-cased": 177_853_440,
    "bert-base-multilingual-uncased": 167_356_416,
    "bert-large-uncased": 335_141_888,
    "bert-large-cased": 333_579_264,
    "spanbert-base-cased": 108_310_272,
    "spanbert-large-cased": 333_579_264,
    "roberta-base": 124_645_632,
    "roberta-large": 355_359_744,
    "xlm-roberta-base": 278_043_648,
    "xlm-roberta-large": 559_890_432,
    "albert-base-v2": 11_683_584,
    "albert-large-v2": 17_683_968,
    "albert-xlarge-v2": 58_724_864,
    "albert-xxlarge-v2": 222_595_584,
    "bigbird-roberta-base": 127_468_800,  # as Transformers counts; 128,111,286 and 360,225,974 with the head
    "bigbird-roberta-large": 359_123_968,
    "bigbird-pegasus-large": 576_891_904,
    "distilbert-base-uncased": 66_362_880,
    "distilbert-base-cased": 65_190_912,
    "distilbert-base-multilingual-cased": 134_734_080,
    "electra-small-discriminator": 13_549_057,
    "electra-base-discriminator": 109_483_009,
    "electra-large-discriminator": 335_142_913,
    "electra-small-generator": 4_620_026,
    "electra-base-generator": 33_740_602,
    "electra-large-generator": 51_295_290,
}
# Of the published checkpoints of models that write text.
PUBLISHED |= {
    "bart-base": 139_420_416,
    "bart-large": 406_291_456,
    "openai-gpt": 116_534_784,
    "gpt2": 124_439_808,
    "gpt2-medium": 354_823_168,
    "gpt2-large": 774_030_080,
    "gpt2-xl": 1_557_611_200,
}
# ELMo without its output over words, by AllenNLP's page.
PUBLISHED |= {"elmo-original": 93_600_848, "elmo-medium": 28_027_728, "elmo-small": 13_593_296}
# Without running statistics; those of 50 are He et al.'s with torchvision's strides, which change no size.
PUBLISHED |= {
    "resnet-18": 11_689_512,
    "resnet-34": 21_797_672,
    "resnet-50": 25_557_032,
    "resnet-101": 44_549_160,
    "resnet-152": 60_192_808,
}
# Of models of pictures, with a head for 1,000 classes; the masked autoencoders with decoder and tables of positions.
PUBLISHED |= {
    "vit-ti-16": 5_717_416,
    "vit-s-16": 22_050_664,
    "vit-b-16": 86_567_656,
    "vit-b-32": 88_224_232,
    "vit-l-16": 304_326_632,
    "vit-l-32": 306_535_400,
    "vit-h-14": 632_045_800,
    "vit-b-16-384": 86_859_496,
    "deit-ti": 5_717_416,
    "deit-s": 22_050_664,
    "deit-b": 86_567_656,
    "deit-b-384": 86_859_496,
    "deit-ti-distilled": 5_910_800,
    "deit-s-distilled": 22_436_432,
    "deit-b-distilled": 87_338_192,
    "deit-b-distilled-384": 87_630_032,
    "mae-b": 111_907_840,
    "mae-l": 329_541_888,
    "mae-h": 657_074_508,
}
# Of pictures and texts; that of the ResNet without running statistics.
PUBLISHED |= {
    "clip-b-32": 151_277_313,
    "clip-b-16": 149_620_737,
    "clip-l-14": 427_616_513,
    "clip-l-14-336": 427_944_193,
    "clip-rn50": 102_007_137,
    "siglip-b-16-224": 203_155_970,
    "siglip-b-16-256": 203_202_050,
    "siglip-b-16-384": 203_447_810,
    "siglip-b-16-512": 203_791_874,
    "siglip-l-16-256": 652_150_786,
    "siglip-l-16-384": 652_478_466,
    "siglip-so400m-14-224": 877_415_602,
    "siglip-so400m-14-384": 877_960_498,
}
# Of detectors of COCO's 91 numbers of classes; Transformers counts no frozen scale and bias of a norm either.
PUBLISHED |= dict.fromkeys(("detr-resnet-50", "detr-resnet-50-dc5"), 41_524_768)
PUBLISHED |= dict.fromkeys(("detr-resnet-101", "detr-resnet-101-dc5"), 60_464_672)
# Brown et al. 2020, table 2.1, in millions. The largest has exactly 174,604,259,328, with GPT-2's 50,257 ids.
GPT_3 = {
    "small": 125,
    "medium": 350,
    "large": 760,
    "xl": 1_300,
    "2.7b": 2_700,
    "6.7b": 6_700,
    "13b": 13_000,
    "175b": 175_000,
}
# Turc et al. 2019, table 1: layers and width.
NAMED = {"bert-tiny": (2, 128), "bert-mini": (4, 256), "bert-small": (4, 512), "bert-medium": (8, 512)}

ENCODERS = {name: config for name, config in PRESETS.items() if isinstance(config, EncoderConfig)}
OTHERS = [name for name in ENCODERS if name not in PUBLISHED]


ONE_OF_EACH = {type(PRESETS[name]): name for name in reversed(PUBLISHED)}.values()


@pytest.mark.parametrize("name", mostly_slow(PUBLISHED, *ONE_OF_EACH))
def test_published_parameter_counts(name):
    assert num_params(PRESETS[name]) == PUBLISHED[name]


@pytest.mark.parametrize(("size", "depth", "width"), [("s", 12, 384), ("b", 12, 768), ("l", 24, 1024), ("h", 32, 1280)])
def test_deit_3_is_a_vit_with_layer_scale_and_a_class_token_without_position(size, depth, width):
    """Touvron et al. 2022, table 1: 22.0, 86.6, 304.4 and 632.1 million."""
    deit_3, vit = PRESETS[f"deit3-{size}"], PRESETS[f"vit-{size}-{14 if size == 'h' else 16}"]
    assert num_params(deit_3) == num_params(vit) + 2 * depth * width - width
    assert round(num_params(deit_3) / 1e6, 1) == {"s": 22.1, "b": 86.6, "l": 304.4, "h": 632.1}[size]
    recipe = {"drop_path_rate": 0.0, "drop_path_schedule": "linear"}
    assert replace(deit_3, layer_scale=0.0, special_positions=True, **recipe) == vit


@pytest.mark.parametrize("size", GPT_3)
def test_gpt_3_has_the_sizes_of_its_table(size):
    config = PRESETS[f"gpt3-{size}"]
    assert num_params(config) / 1e6 == pytest.approx(GPT_3[size], rel=0.02)
    assert (config.max_length, config.vocab_size) == (2048, 50_257)


def test_the_largest_gpt_3_to_the_parameter():
    assert num_params(PRESETS["gpt3-175b"]) == 174_604_259_328


@pytest.mark.parametrize(
    ("name", "vocab_size", "expected"),
    [
        # Without the embedding, which is 37,000 or 32,000 rows of 512 or 1,024, one for encoder, decoder and output.
        ("transformer-base-en-de", 37_000, 44_101_632),
        ("transformer-big-en-fr", 32_000, 176_283_648),
    ],
)
def test_the_transformers_of_2017(name, vocab_size, expected):
    """Table 3 says 65 M and 213 M, without telling which parameters it counts."""
    config = PRESETS[name]
    assert config.vocab_size == vocab_size
    assert num_params(config) == expected + vocab_size * config.embed_dim


@pytest.mark.parametrize("kind", ["lm", "prefix-lm"])
@pytest.mark.parametrize("size", ["small", "base", "large", "3b", "11b"])
def test_t5_decoders_have_the_layers_of_one_stack_or_of_both(kind, size):
    """Raffel et al. 2020, table 2: P parameters or 2P."""
    t5, one, two = PRESETS[f"t5-{size}"], PRESETS[f"t5-{kind}-{size}"], PRESETS[f"t5-{kind}-{size}-2p"]
    assert (one.num_layers, two.num_layers) == (t5.num_decoder_layers, t5.num_encoder_layers + t5.num_decoder_layers)
    assert one.full_prefix == two.full_prefix == (kind == "prefix-lm")
    assert replace(two, num_layers=one.num_layers) == one
    assert all(getattr(one, field.name) == getattr(t5, field.name) for field in fields(T5LayerConfig))


def test_a_layer_of_a_t5_decoder_is_one_of_its_encoders():
    """Without cross-attention; the embedding is left out."""
    t5, one, two = PRESETS["t5-small"], PRESETS["t5-lm-small"], PRESETS["t5-lm-small-2p"]
    with_two_encoders = replace(t5, num_encoder_layers=2 * t5.num_encoder_layers)
    assert num_params(two) - num_params(one) == num_params(with_two_encoders) - num_params(t5)


def test_the_small_berts_have_the_sizes_of_their_names():
    shapes = [re.fullmatch(r"bert-uncased-L-(\d+)-H-(\d+)-A-(\d+)", name) for name in PRESETS]
    shapes = {match[0]: tuple(map(int, match.groups())) for match in shapes if match}
    assert len(shapes) == 24
    for name, shape in shapes.items():
        config = PRESETS[name]
        assert (config.num_layers, config.embed_dim, config.num_heads) == shape
        assert config.mlp_dim == 4 * config.embed_dim
    for name, shape in NAMED.items():
        assert (PRESETS[name].num_layers, PRESETS[name].embed_dim) == shape
    assert PRESETS["bert-uncased-L-12-H-768-A-12"] == PRESETS["bert-base-uncased"]


@pytest.mark.parametrize("name", OTHERS)
def test_the_other_parameter_counts_equal_those_of_transformers(name, torch, transformers):
    c = PRESETS[name]
    family = {"bert": "Bert", "albert": "Albert"}[name.split("-")[0]]
    config = getattr(transformers, f"{family}Config")(
        vocab_size=c.vocab_size,
        hidden_size=c.embed_dim,
        num_hidden_layers=c.num_layers,
        num_attention_heads=c.num_heads,
        intermediate_size=c.mlp_dim,
    )
    with torch.device("meta"):
        model = getattr(transformers, f"{family}Model")(config)
    assert num_params(c) == sum(parameter.numel() for parameter in model.parameters())


@pytest.mark.parametrize("size", ["small", "base", "large"])
def test_an_electra_is_its_two_networks_with_one_set_of_embeddings(size):
    pair = PRESETS[f"electra-{size}"]
    assert pair == ElectraPairConfig(PRESETS[f"electra-{size}-generator"], PRESETS[f"electra-{size}-discriminator"])
    width = pair.discriminator.token_embed_dim
    embeddings = (30_522 + 512 + 2 + 2) * width
    assert num_params(pair) == num_params(pair.generator) + num_params(pair.discriminator) - embeddings


def test_version_2_of_albert_is_version_1_without_dropout():
    for size, rate in {"base": 0.1, "large": 0.1, "xlarge": 0.1, "xxlarge": 0.0}.items():
        version_1, version_2 = PRESETS[f"albert-{size}-v1"], PRESETS[f"albert-{size}-v2"]
        assert isinstance(version_1, AlbertConfig)
        assert (version_1.dropout_rate, version_1.attention_dropout_rate) == (rate, rate)
        assert (version_2.dropout_rate, version_2.attention_dropout_rate) == (0.0, 0.0)
        assert num_params(version_1) == num_params(version_2)
