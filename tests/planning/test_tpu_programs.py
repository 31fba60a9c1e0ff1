"""A train step as the TPU compiler compiles it: the arrays of a chip, and what chips send. It needs no TPU."""

import math
import re
from dataclasses import replace

import jax
import pytest
from jax.experimental.topologies import get_topology_desc

from t5x_lite.data import Bytes, Data, TextFiles, Vocabulary
from t5x_lite.data.layouts.base import abstract_batch
from t5x_lite.kernels import attention
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig, GptConfig, T5Config
from t5x_lite.objectives import CausalLanguageModel, NextSentencePrediction, ReplacedTokenDetection, SpanCorruption
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.parallel import MeshShape, batch_sharding, make_mesh
from t5x_lite.planning.hlo import read_hlo
from t5x_lite.planning.topology import Topology
from t5x_lite.training import Experiment
from t5x_lite.training.experiment import Precision
from t5x_lite.training.step import Program

pytest.importorskip("libtpu", reason="the TPU compiler is not installed")

VOCAB, LENGTH, ROWS_PER_CHIP = 2944, 128, 8
"""No other size is a multiple of the vocabulary's 23, nor is half of it."""
WIDTHS = {"vocab_size": VOCAB, "embed_dim": 256, "num_heads": 4, "mlp_dim": 512}
ENCODER = WIDTHS | {"num_layers": 2, "max_length": LENGTH}
DISCRIMINATOR = ElectraConfig(**ENCODER, token_embed_dim=256, heads=("replaced_token",))
GENERATOR = ElectraConfig(**ENCODER, token_embed_dim=256, heads=("masked_lm",))
FAMILIES = {
    "T5": (
        SpanCorruption(LENGTH, z_loss=1e-4, label_smoothing=0.1),
        T5Config(**WIDTHS, num_encoder_layers=2, num_decoder_layers=2),
    ),
    "BERT": (NextSentencePrediction(LENGTH), BertConfig(**ENCODER, heads=("masked_lm", "sentence_pair"))),
    "ELECTRA": (ReplacedTokenDetection(LENGTH), ElectraPairConfig(GENERATOR, DISCRIMINATOR)),
    "GPT": (CausalLanguageModel(LENGTH), GptConfig(**ENCODER)),
}
WORDS = Vocabulary(VOCAB, eos_id=1, cls_id=2, sep_id=3, mask_id=4, first_sentinel_id=VOCAB - 1, num_sentinels=100)


@pytest.fixture(scope="module")
def compile_step():
    """`compile_step(family, mesh)`: the text of its train step for eight v5p chips, or those given."""
    eight = Topology.parse("v5p:2x2x2").devices

    def compile_for(family, shape, chips=eight):
        objective, model = FAMILIES[family]
        experiment = Experiment(
            model=model,
            objective=objective,
            data=Data(TextFiles(("none",)), Bytes()),
            optimizer=AdamW(),
            steps=1,
            batch_size=ROWS_PER_CHIP * len(chips),
            remat="full",
            precision=Precision("bfloat16"),
            mesh=shape,
        )
        program = Program(experiment, objective.for_vocabulary(WORDS), make_mesh(shape, chips))
        spec, share = program.objective.layout.spec, batch_sharding(program.mesh)
        batch = abstract_batch(spec, experiment.batch_size, sharding=share)
        return program.train_step.lower(program.abstract_state, batch).compile().as_text()

    return compile_for


def shapes(text):
    """Every shape in some lines of HLO, as a tuple of sizes."""
    return {tuple(map(int, sizes.split(","))) for sizes in re.findall(r"[a-z]+[0-9]*\[([\d,]+)\]", text)}


def collectives(text):
    """(kind, shape) of all that chips send; a sum in a fusion that keeps a slice is a reduce-scatter."""
    kinds = r" = (.*?) (all-gather|all-reduce|reduce-scatter|all-to-all|collective-permute)(?:-start)?\("
    found = []
    for computation in re.split(r"^}.*$", text, flags=re.MULTILINE):
        fused = computation.lstrip().startswith("%all-reduce-scatter")
        for result, kind in re.findall(kinds, computation):
            found += [("reduce-scatter" if fused else kind, shape) for shape in shapes(result)]
    return found


@pytest.mark.parametrize("family", FAMILIES)
def test_no_chip_holds_the_logits_of_all_the_vocabulary(family, compile_step):
    """Nor the embedding: with `tensor` at two, an array with all ids is a vector at most."""
    found = shapes(compile_step(family, MeshShape(2, 2, tensor=2)))
    assert any(VOCAB // 2 in shape for shape in found)
    whole = {shape for shape in found if any(size % VOCAB == 0 for size in shape)}
    assert all(math.prod(shape) <= 8 * VOCAB for shape in whole), whole


@pytest.mark.parametrize("family", ["T5", "GPT"])
def test_no_chip_holds_the_logits_of_all_its_tokens(family, compile_step):
    """In float32 or else: a chunk has half of them, and is all that is written out."""
    objective, _ = FAMILIES[family]
    features = jax.eval_shape(
        lambda row: objective.for_vocabulary(WORDS).corrupt(jax.random.key(0), row),
        abstract_batch(objective.layout.spec),
    )
    tokens = ROWS_PER_CHIP * features["targets"].size
    arrays = [array for run in read_hlo(compile_step(family, MeshShape(8))).runs() for array in run.instruction.arrays]
    logits = [array.num_elements for array in arrays if VOCAB in array.shape and 256 not in array.shape]
    assert max(logits) == tokens // 2 * VOCAB


@pytest.mark.parametrize(
    ("family", "mesh", "num_slices"),
    [
        ("T5", MeshShape(2, 4), 1),
        ("T5", MeshShape(1, 8), 1),
        ("GPT", MeshShape(2, 4), 1),
        ("GPT", MeshShape(1, 8), 1),
        ("GPT", MeshShape(2, 8), 2),
    ],
)
def test_parameters_are_sent_and_activations_are_not(family, mesh, num_slices, compile_step):
    """Nothing of the size of a chip's activations is sent but the embedding; matrices are gathered, and their gradients
    reduced and scattered in one: among four chips, or in two stages among all eight of the slice.
    """
    chips = get_topology_desc(platform="tpu", topology_name="v5p:2x2x2", num_slices=num_slices).devices
    sent = collectives(compile_step(family, mesh, chips))
    activations = ROWS_PER_CHIP * LENGTH * WIDTHS["embed_dim"]
    large = [(kind, shape) for kind, shape in sent if math.prod(shape) >= activations]
    assert large
    assert all(math.prod(shape) == VOCAB * 256 for _, shape in large), large
    whole = 256 * WIDTHS["mlp_dim"]
    assert {kind for kind, shape in sent if math.prod(shape) == whole} == {"all-gather"}
    assert "reduce-scatter" in {kind for kind, shape in sent if math.prod(shape) == whole // 4}


@pytest.mark.parametrize("flash", [True, False])
def test_long_rows_have_no_array_of_all_pairs(compile_step, monkeypatch, flash):
    """Heads, rows and vocabulary are sharded; the length is not a multiple of a tile's."""
    length, padded = 640, 768
    if not flash:
        monkeypatch.setattr(attention, "FLASH_FROM", 10**6)
    long = (replace(FAMILIES["T5"][0], input_length=length, mean_span_length=8.0), FAMILIES["T5"][1])
    monkeypatch.setitem(FAMILIES, "T5", long)
    text = compile_step("T5", MeshShape(2, 2, tensor=2))
    assert ("tpu_custom_call" in text) == flash
    pairs = [shape for shape in shapes(text) if sum(size in (length, padded) for size in shape) > 1]
    assert bool(pairs) != flash, pairs
