"""ELMo's HDF5 files: AllenNLP's own small one with its embeddings, where it is, and one of random numbers else."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest

import t5x_lite
from t5x_lite.convert.elmo import import_elmo
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.characters import word_characters

SHARED = Path(__file__).parents[3] / "shared" / "data" / "elmo_fixture"
OPTIONS = {
    "lstm": {
        "cell_clip": 3,
        "use_skip_connections": True,
        "n_layers": 2,
        "proj_clip": 3,
        "projection_dim": 5,
        "dim": 7,
    },
    "char_cnn": {
        "embedding": {"dim": 4},
        "filters": [[1, 3], [2, 6]],
        "n_highway": 1,
        "n_characters": 262,
        "max_characters_per_token": 12,
        "activation": "relu",
    },
}


@pytest.fixture(scope="session")
def h5py():
    return pytest.importorskip("h5py", reason="h5py reads ELMo's weights; pip install '.[elmo]'")


def write(h5py, folder, changes=None, **options):
    """A folder as AllenNLP's: random weights."""
    random, shapes = np.random.default_rng(0), {"char_embed": (261, 4)}
    for n, (width, count) in enumerate(OPTIONS["char_cnn"]["filters"]):
        shapes |= {f"CNN/W_cnn_{n}": (1, width, 4, count), f"CNN/b_cnn_{n}": (count,)}
    for part in ("carry", "transform"):
        shapes |= {f"CNN_high_0/W_{part}": (9, 9), f"CNN_high_0/b_{part}": (9,)}
    shapes |= {"CNN_proj/W_proj": (9, 5), "CNN_proj/b_proj": (5,)}
    for direction in (0, 1):
        for n in (0, 1):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            shapes |= {f"{cell}/W_0": (10, 28), f"{cell}/B": (28,), f"{cell}/W_P_0": (7, 5)}
    shapes |= changes or {}
    folder.mkdir(exist_ok=True)
    (folder / "elmo_options.json").write_text(json.dumps(OPTIONS | options))
    with h5py.File(folder / "elmo_weights.hdf5", "w") as file:
        for name, shape in shapes.items():
            if shape is not None:
                file[name] = random.normal(size=shape).astype(np.float32)
    return folder


@pytest.fixture(scope="module")
def folder(h5py, tmp_path_factory):
    return write(h5py, tmp_path_factory.mktemp("elmo") / "small")


def equations(h5py, folder, words):
    """bilm-tf's equations, word by word, in float64: [3 W 10]."""
    with h5py.File(folder / "elmo_weights.hdf5") as file:
        t = {}
        file.visititems(lambda name, one: t.update({name: one[...].astype(float)}) if hasattr(one, "shape") else None)

    def sigmoid(x):
        return 1 / (1 + np.exp(-x))

    vectors = []
    for word in ("<S>", *words, "</S>"):
        x, found = t["char_embed"][word_characters(word, 12)], []
        for n, (width, _) in enumerate(OPTIONS["char_cnn"]["filters"]):
            windows = [np.einsum("wc,wcf->f", x[at : at + width], t[f"CNN/W_cnn_{n}"][0]) for at in range(13 - width)]
            found.append(np.maximum(np.max(windows, axis=0) + t[f"CNN/b_cnn_{n}"], 0))
        x = np.concatenate(found)
        carry = sigmoid(x @ t["CNN_high_0/W_carry"] + t["CNN_high_0/b_carry"])
        transform = np.maximum(x @ t["CNN_high_0/W_transform"] + t["CNN_high_0/b_transform"], 0)
        vectors.append((carry * transform + (1 - carry) * x) @ t["CNN_proj/W_proj"] + t["CNN_proj/b_proj"])
    layers = [[np.stack(vectors)], [np.stack(vectors)[::-1]]]
    for direction in (0, 1):
        for n in (0, 1):
            cell = f"RNN_{direction}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            x, h, c, outputs = layers[direction][-1], np.zeros(5), np.zeros(7), []
            for row in x:
                i, j, f, o = np.split(np.concatenate([row, h]) @ t[f"{cell}/W_0"] + t[f"{cell}/B"], 4)
                c = np.clip(sigmoid(f + 1) * c + sigmoid(i) * np.tanh(j), -3, 3)
                h = np.clip((sigmoid(o) * np.tanh(c)) @ t[f"{cell}/W_P_0"], -3, 3)
                outputs.append(h)
            layers[direction].append(np.stack(outputs) + (x if n else 0))
    both = [np.concatenate([one, other[::-1]], axis=1) for one, other in zip(*layers, strict=True)]
    return np.stack(both)[:, 1:-1]


def test_its_vectors_are_those_of_the_equations(h5py, folder):
    sentences = [["The", "café", "extraordinarily", "x"], ["Yes"]]
    model = t5x_lite.load(folder)
    for words, vectors in zip(sentences, model.encode_words(sentences), strict=True):
        np.testing.assert_allclose(vectors, equations(h5py, folder, words), atol=2e-5)
    (alone,) = model.encode_words(sentences[1:])
    np.testing.assert_allclose(alone, vectors, atol=1e-6)


def test_allennlps_embeddings_over_ten_batches_whose_state_goes_on(h5py):
    """Three texts side by side, each cut into ten sentences; both directions keep their states between them."""
    if not SHARED.is_dir():
        pytest.skip("needs ../shared/data/elmo_fixture beside the checkout")
    model, state = t5x_lite.load(SHARED), None
    apply = jax.jit(lambda params, *arrays: model.module.apply({"params": params}, *arrays, method="layers_and_state"))
    texts = json.loads((SHARED / "sentences.json").read_text())
    expected = [h5py.File(SHARED / f"lm_embeddings_{n}.hdf5") for n in range(3)]
    for number in range(10):
        rows = [["<S>", *text[number].split(), "</S>"] for text in texts]
        characters, valid = np.full((3, 64, 50), 260, np.int32), np.zeros((3, 64), bool)
        for row, words in enumerate(rows):
            characters[row, : len(words)], valid[row, : len(words)] = [word_characters(word) for word in words], True
        layers, state = apply(model.params, jax.device_put(characters), jax.device_put(valid), state)
        for row, words in enumerate(rows):
            forward, backward = expected[row][str(number)][...]
            ours = np.asarray(layers)[2, row, 1 : len(words) - 1]
            np.testing.assert_allclose(ours, np.concatenate([forward, backward], axis=1), atol=1e-5)


@pytest.mark.parametrize(
    ("changes", "options", "message"),
    [
        ({"CNN_proj/b_proj": None}, {}, "lacks CNN_proj/b_proj"),
        ({"CNN_proj/b_proj": (6,)}, {}, r"words/projection/bias has \(6,\) where the model has \(5,\)"),
        ({}, {"lstm": OPTIONS["lstm"] | {"use_skip_connections": False}}, "use_skip_connections=False .* is another"),
        ({}, {"char_cnn": OPTIONS["char_cnn"] | {"activation": "tanh"}}, "activation='tanh' .* is another"),
        ({"bomb": (10, 1000)}, {}, "holds 12,715 numbers or texts, the model 2,715 numbers"),
        ({}, {"lstm": {}}, "is damaged, or no options of ELMo"),
        ({}, {"lstm": OPTIONS["lstm"] | {"dim": 0}}, "units=0"),
    ],
)
def test_what_does_not_fit_is_refused(h5py, tmp_path, changes, options, message):
    with pytest.raises(InputError, match=message):
        t5x_lite.load(write(h5py, tmp_path / "elmo", changes, **options))


def test_a_damaged_file_is_refused(h5py, folder, tmp_path):
    (tmp_path / "options.json").write_bytes((folder / "elmo_options.json").read_bytes())
    content = (folder / "elmo_weights.hdf5").read_bytes()
    for damaged in (content[: len(content) // 2], b"", b"text" * 100):
        (tmp_path / "weights.hdf5").write_bytes(damaged)
        with pytest.raises(InputError, match="is damaged, or no HDF5|lacks"):
            t5x_lite.load(tmp_path)


def test_without_h5py_the_extra_is_named(folder, monkeypatch):
    monkeypatch.setitem(__import__("sys").modules, "h5py", None)
    with pytest.raises(InputError, match=r"pip install 't5x_lite\[elmo\]'"):
        import_elmo(folder / "elmo_options.json", folder / "elmo_weights.hdf5", None)


@pytest.mark.parametrize("sentences", [["a text"], [[]], [["a", 1]]])
def test_sentences_are_lists_of_words(folder, sentences):
    with pytest.raises(InputError, match=r"sentences\[0\]=.* is not a list of words"):
        t5x_lite.load(folder).encode_words(sentences)
