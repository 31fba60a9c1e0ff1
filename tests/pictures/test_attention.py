"""Attention masks from the models themselves, and the page as a browser's parser reads it."""

import base64
import html
import json
import re
import shutil
import subprocess
import zlib
from dataclasses import replace
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.data import Vocabulary
from t5x_lite.errors import InputError
from t5x_lite.models import BertConfig, ElectraConfig, ElectraPairConfig, GptConfig, T5Config, T5DecoderConfig
from t5x_lite.objectives import (
    CausalLanguageModel,
    MaskedLanguageModel,
    PrefixLanguageModel,
    ReplacedTokenDetection,
    SequenceToSequence,
)
from t5x_lite.objectives.base import corrupt_rows
from t5x_lite.pictures import attention as room
from t5x_lite.pictures.attention import AttentionMap, AttentionMaps, attention_masks

VOCABULARY = Vocabulary(40, pad_id=0, eos_id=1, cls_id=3, sep_id=1, mask_id=4)
SIZES = {"vocab_size": 40, "embed_dim": 6, "num_heads": 2, "mlp_dim": 5, "num_layers": 1}
T5 = T5Config(40, 6, 2, head_dim=3, mlp_dim=5, num_encoder_layers=1, num_decoder_layers=1)


def masks_of(objective, model, raw):
    objective = objective.for_vocabulary(VOCABULARY)
    raw = jnp.array(raw, jnp.int32)
    batch = {"inputs": raw[:, :6], "targets": raw[:, 6:]} if isinstance(objective, SequenceToSequence) else {"ids": raw}
    features = corrupt_rows(objective, jax.random.key(0), batch)
    return {name: np.asarray(value) for name, value in features.items()}, attention_masks(objective, model, features)


def test_packed_pairs_stay_apart():
    raw = [[10, 11, 1, 12, 1, 0, 20, 1, 21, 22, 1]]
    _, masks = masks_of(SequenceToSequence(6, target_length=5), T5, raw)
    inputs, targets = np.array([1, 1, 1, 2, 2, 3]), np.array([1, 1, 2, 2, 2])
    assert list(masks) == ["encoder", "decoder", "cross"]
    np.testing.assert_array_equal(masks["encoder"][0], inputs[:, None] == inputs)
    np.testing.assert_array_equal(masks["decoder"][0], (targets[:, None] == targets) & np.tri(5, dtype=bool))
    np.testing.assert_array_equal(masks["cross"][0], targets[:, None] == inputs)


def test_stacks_that_share_their_layers_are_two():
    shared = replace(T5, stacks_share_parameters=True)
    raw = [[10, 11, 1, 0, 0, 0, 20, 1, 0, 0, 0]]
    _, masks = masks_of(SequenceToSequence(6, target_length=5, packed=False), shared, raw)
    assert list(masks) == ["encoder", "decoder", "cross"]
    np.testing.assert_array_equal(masks["cross"][0], np.tile([1, 1, 1, 0, 0, 0], (5, 1)))


@pytest.mark.parametrize("full_prefix", [True, False])
def test_a_prefix_lm_is_whole_before_its_cut(full_prefix):
    model = T5DecoderConfig(**SIZES, head_dim=3, full_prefix=full_prefix)
    features, masks = masks_of(PrefixLanguageModel(8), model, [list(range(10, 18))])
    # The decoder reads the inputs less their EOS, which begins the targets.
    inputs = int((features["inputs"][0] > 0).sum()) - 1
    (mask,) = masks["decoder"]
    width = len(mask) - features["targets"].shape[1]
    seen = np.tri(len(mask), dtype=bool)
    if full_prefix:
        seen[:width, :width] = True
    seen[:, : width - inputs] = False  # padding is in front
    np.testing.assert_array_equal(mask[width - inputs :], seen[width - inputs :])


def test_a_causal_model_and_encoders():
    gpt = GptConfig(**SIZES, max_length=8)
    _, masks = masks_of(CausalLanguageModel(5), gpt, [list(range(10, 16))])
    np.testing.assert_array_equal(masks["decoder"][0], np.tri(5, dtype=bool))
    row = [3, 10, 11, 12, 13, 14, 1, 0]
    bert = BertConfig(**SIZES, max_length=8, heads=("masked_lm",))
    _, masks = masks_of(MaskedLanguageModel(8), bert, [row])
    np.testing.assert_array_equal(masks["encoder"][0], np.tile([1] * 7 + [0], (8, 1)))
    electra = ElectraConfig(**SIZES, max_length=8, token_embed_dim=4, heads=("replaced_token",))
    pair = ElectraPairConfig(replace(electra, heads=("masked_lm",)), electra)
    _, masks = masks_of(ReplacedTokenDetection(8), pair, [row])
    assert list(masks) == ["generator", "discriminator"]
    np.testing.assert_array_equal(masks["generator"], masks["discriminator"])


HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "</script ",
    "]]>",
    "&amp;",
    '"',
    "\\",
    "\u2028",
    "{{attention}}",
    "ж",
]


class Page(HTMLParser):
    """Elements by name, and what stands in each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "action", "data")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and self.tags[-1] == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def maps():
    random = np.random.default_rng(0)
    weights = [random.dirichlet(np.ones(10), shape).astype(np.float32) for shape in ((2, 3, 10), (1, 2, 4))]
    maps = AttentionMap("self", HOSTILE, HOSTILE, weights[0]), AttentionMap("cross", "abcd", HOSTILE, weights[1])
    return AttentionMaps(maps)


def test_an_only_head_is_drawn_with_its_tokens():
    """As the papers draw the alignment of two texts."""
    weights = np.float32([[[[0.75, 0.25], [0.5, 0.5], [0, 1]]]])
    more = AttentionMap("cross", "abc", "xy", np.repeat(weights, 2, axis=1))
    for picture in (AttentionMap("cross", "abc", "xy", weights).plot(), more.plot(0, 1)):
        axes = picture.axes[0]
        assert [one.get_text() for one in axes.get_yticklabels()] == ["a", "b", "c"]
        assert [one.get_text() for one in axes.get_xticklabels()] == ["x", "y"]
        np.testing.assert_array_equal(axes.images[0].get_array(), weights[0, 0])
    assert not more.plot().axes[0].get_yticklabels()


def unpack(found):
    """The weights as the page's script unpacks them."""
    data, shape = zlib.decompress(base64.b64decode(found["weights"])), found["shape"]
    rows = shape[0] * shape[1] * shape[2]
    largest = np.frombuffer(data, "<f4", rows).reshape(*shape[:3], 1)
    return largest / found["num_steps"] * np.frombuffer(data, np.uint8, offset=4 * rows).reshape(shape)


def test_weights_are_right_to_a_255th_of_their_row_whatever_its_size():
    weights = np.random.default_rng(0).random((1, 5, 3, 7)) * np.logspace(0, -12, 5)[:, None, None]
    weights[0, 0, 0] = 0.0
    for one in (weights.astype(np.float32), np.asarray(jnp.asarray(weights, jnp.bfloat16))):
        page = Page(AttentionMaps((AttentionMap("self", "abc", "abcdefg", one),)).html())
        error = np.abs(unpack(json.loads(page.scripts[0])["kinds"][0]) - one.astype(np.float32))
        assert np.all(error <= one.max(axis=-1, keepdims=True).astype(np.float32) / 255)


@pytest.mark.parametrize(("sharpness", "num_steps"), [(3, 128), (2, 32), (1.5, 8), (0.2, 4), (0, 128)])
def test_a_page_is_small(sharpness, num_steps, monkeypatch):
    """A twelfth of BERT-base over 343 tokens, whose page should be below 5 MB; where attention is spread and uneven it
    is as fine as that allows."""
    monkeypatch.setattr(room, "_PAGE_BYTES", room._PAGE_BYTES / 12)
    logits = sharpness * np.random.default_rng(0).standard_normal((1, 12, 343, 343), np.float32)
    weights, words = np.asarray(jax.nn.softmax(logits)), ["word"] * 343
    (found,) = json.loads(Page(AttentionMaps((AttentionMap("self", words, words, weights),)).html()).scripts[0])[
        "kinds"
    ]
    assert len(found["weights"]) < 4.9e6 / 12
    assert found["num_steps"] == num_steps
    error = np.abs(unpack(found) - weights) / weights.max(axis=-1, keepdims=True)
    assert error.max() <= 0.501 / num_steps


def test_a_line_for_each_kind(maps):
    lines = ["self: 2 layers of 3 heads, 10 tokens look at 10", "cross: 1 layers of 2 heads, 4 tokens look at 10"]
    assert repr(maps).splitlines() == lines


def test_the_page_names_the_model_and_the_text(maps):
    hostile = "</title><script>alert(1)</script> {{attention}} <b>"
    text = replace(maps, model="runs/<i>", text=hostile).html()
    page = Page(text)
    assert len(page.scripts) == 2
    assert not {"b", "i"} & set(page.tags)
    escaped = html.escape(hostile)
    assert f"<title>Attention of runs/&lt;i&gt;: {escaped}</title>" in text
    assert "<h1>Attention of runs/&lt;i&gt;</h1>" in text
    assert f'<p id="text">{escaped}</p>' in text
    assert "<title>Attention</title>" in maps.html()


CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")


@pytest.mark.skipif(CHROMIUM is None, reason="no browser is installed")
@pytest.mark.parametrize(
    ("address", "shown", "marked"),
    [
        ("#kind=cross&layer=0&head=mean&query=2", "layer <b>0</b>, <b>mean of the heads</b>", [("queries", "2")]),
        ("#layer=1&head=0&key=9", "layer <b>1</b>, <b>head 0</b>", [("keys", "9")]),
        ("#kind=none&layer=7&head=-1&query=99", "layer <b>0</b>, <b>head 0</b>", []),
    ],
)
def test_the_address_says_what_is_shown(maps, tmp_path, address, shown, marked):
    maps.html(tmp_path / "page.html")
    # A profile of its own, since a browser that is open would take the page and print nothing.
    options = ("--headless", "--no-sandbox", "--disable-gpu", f"--user-data-dir={tmp_path}/profile", "--dump-dom")
    command = [CHROMIUM, *options, "--virtual-time-budget=3000", f"file://{tmp_path}/page.html{address}"]
    found = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True).stdout
    assert shown in found
    pinned = re.findall(r'<button class="token on"[^>]* data-side="(\w+)" data-index="(\d+)"', found)
    assert pinned == marked


def test_the_data_come_back_whatever_the_tokens(maps):
    page = Page(maps.html(kind="cross", layer=0, head=1))
    assert len(page.scripts) == 2, "no token begins or ends a script"
    data = json.loads(page.scripts[0])
    assert data["start"] == {"kind": 1, "layer": 0, "head": 1}
    for one, found in zip(maps.maps, data["kinds"], strict=True):
        assert (found["kind"], found["queries"], found["keys"]) == (one.kind, list(one.queries), list(one.keys))
        unpacked = unpack(found)
        assert np.all(np.abs(unpacked - one.weights) <= one.weights.max(axis=-1, keepdims=True) / 255)


def test_it_loads_nothing(maps):
    text = maps.html()
    page = Page(text)
    assert page.links == ["data:,"]
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    assert "default-src 'none'" in text
    assert "innerHTML" not in text


def test_a_frame_holds_the_page_and_nothing_more(maps):
    frame = Page(maps._repr_html_())
    assert frame.tags == ["iframe"]


def test_a_page_too_large_for_a_browser(maps, monkeypatch):
    monkeypatch.setattr(room, "_MOST", 500)
    with pytest.raises(InputError, match="the page would hold 680 weights, and browsers open 500; give a shorter text"):
        maps.html()
