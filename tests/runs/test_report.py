"""What a run prints of an encoder at its end."""

from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest.mock import create_autospec

import numpy as np
import pytest
from etils import epath
from flax import linen as nn
from rich.cells import cell_len

from t5x_lite.columns import wrap_lines
from t5x_lite.data import Bytes, Data, TokenStore, Vocabulary, make_tokenizer
from t5x_lite.data.layouts.text import Sentences
from t5x_lite.evaluation.figures import describe
from t5x_lite.evaluation.predictions import format_samples, held_out_features, held_out_samples
from t5x_lite.models import GptConfig
from t5x_lite.objectives import CausalLanguageModel, MaskedLanguageModel, SpanCorruption
from t5x_lite.parallel import MeshShape, make_mesh
from t5x_lite.pictures.drawing import draw_curves
from t5x_lite.runs.report import plot_losses
from t5x_lite.tokenizers.config import WordPiece
from t5x_lite.training.step import Program


@dataclass(frozen=True)
class _Oracle(MaskedLanguageModel):
    """One who knows what is hidden, but for the first token of a row, which it takes for a mask."""

    def predict(self, module: Any, params: Any, features: dict[str, Any]) -> Any:
        return features["targets"].at[:, 0].set(self.known_vocabulary.mask_id)


def test_fill_ins_line_up():
    texts = [f"{number} green bottles are hanging on the wall" for number in range(20)]
    tokenizer = make_tokenizer(WordPiece(vocab_size=90), lambda: iter(texts))
    builder = Sentences(24).start(tokenizer.vocabulary)
    for ids in tokenizer.encode_batch(texts):
        builder.add([ids])
    builder.finish()
    rows = builder.take()
    # Every target is hidden, so that masks can be counted.
    objective = _Oracle(24, mask_share=1.0, random_share=0.0).for_vocabulary(tokenizer.vocabulary)
    mesh = make_mesh(MeshShape(2, 2, 2))  # does not divide the three rows
    program = create_autospec(Program, instance=True, objective=objective, module=nn.Module(), mesh=mesh)
    program.experiment, program.evaluated_shardings = SimpleNamespace(data=Data()), {}
    store = create_autospec(TokenStore, instance=True, held_out=rows, tokenizer=tokenizer, classes=())
    features = held_out_features(objective, rows, 3)
    samples = held_out_samples(program, {}, store, num_rows=3)
    blocks = format_samples(program, store, samples).split("--- held-out row ")[1:]
    assert len(blocks) == 3
    for index, block in enumerate(blocks):
        lines = dict(line.split(":", 1) for line in block.splitlines()[1:] if line)
        targets = [i for i in features["targets"][index] if i != tokenizer.vocabulary.pad_id]
        expected = [tokenizer.decode([token]) for token in targets]
        assert lines["target"].strip().split(", ") == expected
        assert lines["model"].strip().split(", ") == ["[MASK]", *expected[1:]]
        assert lines["input"].count("[MASK]") == len(targets)


def test_blanks_stand_beside_what_the_model_writes_in_them():
    tokenizer = make_tokenizer(Bytes(extra_ids=4), lambda: iter(()))
    sentinel, encode = tokenizer.vocabulary.sentinel_id, tokenizer.encode
    long = "word after word " * 9
    row = {
        "inputs": [*encode("The "), sentinel(0), *encode("is "), sentinel(1), *encode(" [bold]here"), sentinel(2), 1],
        "targets": [sentinel(0), *encode("list "), sentinel(1), *encode(long), sentinel(2), *encode("[red]it"), 1, 0],
        "answers": [*encode("odd"), sentinel(0), *encode("copy "), sentinel(1), *encode(long), sentinel(3), 66, 1, 0],
    }
    text = SpanCorruption(40).format_sample({name: np.array(ids) for name, ids in row.items()}, tokenizer, None)
    first, header, *lines = text.splitlines()
    assert first == "input:  The <extra_id_0>is <extra_id_1> [bold]here<extra_id_2>"
    assert header.split() == ["blank", "truth", "model"]
    starts = [header.index(name) for name in ("truth", "model")]
    cells = [(line[: starts[0]].strip(), line[starts[0] : starts[1]].strip(), line[starts[1] :]) for line in lines]
    assert cells[0] == ("<extra_id_0>", "list", "copy")
    assert (
        " ".join(truth for _, truth, _ in cells[1:-2]) == " ".join(model for *_, model in cells[1:-2]) == long.strip()
    )
    assert [blank for blank, *_ in cells[1:-2]] == ["<extra_id_1>", *[""] * (len(cells) - 4)]
    assert cells[-2] == ("<extra_id_2>", "[red]it", "(none)")
    assert cells[-1][::2] == ("elsewhere", f"odd {tokenizer.decode([66])}")
    assert max(map(len, (header, *lines))) <= 80


def test_lines_break_at_words_below_their_label():
    words = "words of [bold]any[/bold] kind " * 8
    wrapped = wrap_lines(f"--- held-out row 0\ninput:  {words}\n\nmodel:  日本語{'の文章' * 30}").split("\n")
    assert max(map(cell_len, wrapped)) <= 80
    assert wrapped[0] == "--- held-out row 0"
    blank = wrapped.index("")
    assert " ".join(line.removeprefix("input:").strip() for line in wrapped[1:blank]) == words.strip()
    assert all(line.startswith(" " * 8) for line in wrapped[2:blank] + wrapped[blank + 2 :])


def test_padding_is_no_target_whatever_its_id():
    targets = np.array([[7, 7, 8, 8, 1, 1], [1, 1, 1, 1, 1, 1]])
    objective = CausalLanguageModel(6).for_vocabulary(Vocabulary(10, pad_id=1, eos_id=2))
    assert objective.baseline_loss({"targets": targets}, GptConfig()) == pytest.approx(np.log(2))


def test_the_losses_of_a_run_are_titled_with_its_name_and_model(tmp_path, monkeypatch):
    workdir, titles = epath.Path(tmp_path) / "first_run", []
    workdir.mkdir()
    (workdir / "metrics.jsonl").write_text('{"step": 1, "kind": "train", "loss": 2.0}\n')
    objective = CausalLanguageModel(6)
    program = create_autospec(Program, instance=True, objective=objective)
    program.experiment = SimpleNamespace(model=GptConfig(), objective=objective)

    def draw(curves, **options):
        titles.append(options["title"])
        return draw_curves(curves, **options)

    monkeypatch.setattr("t5x_lite.pictures.drawing.draw_curves", draw)
    held_out = SimpleNamespace(program=program, baseline_loss=3.0)
    plot_losses(workdir / "metrics.jsonl", workdir / "loss.png", held_out)
    assert titles == ["first_run (Gpt): loss"]
    assert (workdir / "loss.png").exists()


def test_every_figure_is_told():
    figures = {"loss": 2.0, "unigram_loss": 5.0, "accuracy": 0.5, "perplexity": 7.4, "tokens": 90.0}
    assert ";" not in describe(figures, {})
    message = describe(figures | {"replaced": 0.11, "detection_loss": 0.25}, {})
    assert message.endswith("90 tokens; replaced 11.0%, detection loss 0.250")
