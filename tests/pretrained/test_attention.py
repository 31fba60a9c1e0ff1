"""Where models look: the weights are those of the forward pass, of the tokens alone, and Transformers'."""

from dataclasses import replace
from html.parser import HTMLParser

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from t5x_lite.convert import import_folder
from t5x_lite.data import Bytes, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.models import AlbertConfig, BertConfig, GptConfig, Linformer, T5Config, T5DecoderConfig
from t5x_lite.pictures import attention
from t5x_lite.pictures.attention import AttentionMap, AttentionMaps, sown_weights
from t5x_lite.pretrained import PretrainedDecoder, PretrainedEncoderDecoder

from .conftest import SIZES

PAIR = ("the bottles", "a wall falls and hangs")


def bytes_tokenizer():
    return make_tokenizer(Bytes(), lambda: iter(()))


@pytest.fixture(scope="module")
def make_decoder(make_params):
    def make(config):
        module, ids = config.build(), jnp.ones((1, 2), jnp.int32)
        return PretrainedDecoder(config, module, make_params(module, 0, ids, ids), bytes_tokenizer())

    return make


def assert_weights(one):
    assert one.weights.dtype == np.float32
    assert one.weights.shape[2:] == (len(one.queries), len(one.keys))
    np.testing.assert_allclose(one.weights.sum(-1), 1.0, atol=1e-5)


def sown(model, *ids):
    """What the module sows for ids without padding."""

    def apply(params, *ids):
        return model.module.apply({"params": params}, *ids, mutable=["intermediates"])[1]["intermediates"]

    return jax.jit(apply)(model.params, *ids)


def stacked(tree, name="self_attention", call=0):
    return np.asarray(tree["layers"][name]["weights"][call])[:, 0]


def test_an_encoder_looks_at_its_tokens_alone(bert):
    maps = bert.attention(PAIR)
    assert maps.kinds == ("self",)
    (one,) = maps.maps
    vocabulary, encode = bert.tokenizer.vocabulary, bert.tokenizer.encode
    a, b = ([*encode(text), vocabulary.sep_id] for text in PAIR)
    ids = jnp.array([[vocabulary.cls_id, *a, *b]])
    assert one.queries == one.keys
    assert one.queries[0] == "[CLS]"
    assert [n for n, token in enumerate(one.queries) if token == "[SEP]"] == [len(a), len(a) + len(b)]
    assert_weights(one)  # rows of 32 ids were read; of the padding nothing is left to sum
    expected = stacked(sown(bert, ids, jnp.array([[0] * (1 + len(a)) + [1] * len(b)]))["encoder"])
    np.testing.assert_allclose(one.weights, expected, atol=1e-5)
    together = bert.attention([PAIR, "the wall"])
    np.testing.assert_array_equal(together[0].maps[0].weights, one.weights)


def test_of_a_pair_both_networks_look(electra):
    maps = electra.attention("the wall")
    assert maps.kinds == ("discriminator", "generator")
    assert [one.weights.shape[:2] for one in maps.maps] == [(4, 3), (2, 3)]
    for one in maps.maps:
        assert_weights(one)
    assert maps["generator"].queries == maps["discriminator"].queries


def test_layers_that_share_their_parameters_look_each_for_itself(make_encoder):
    albert = make_encoder(AlbertConfig(embed_dim=12, token_embed_dim=5, **SIZES))
    (one,) = albert.attention("green bottles").maps
    assert one.weights.shape[:2] == (4, 3)
    assert_weights(one)
    assert np.abs(one.weights[0] - one.weights[1]).max() > 1e-3


def test_a_decoder_looks_back(make_decoder):
    gpt = make_decoder(GptConfig(vocab_size=384, embed_dim=12, num_heads=3, mlp_dim=17, num_layers=2, max_length=64))
    (one,) = gpt.attention("abcdef").maps
    assert (one.kind, "".join(one.queries)) == ("causal", "abcdef")
    assert_weights(one)
    assert not np.triu(one.weights, 1).any()
    np.testing.assert_allclose(one.weights, stacked(sown(gpt, jnp.arange(100, 106)[None])["decoder"]), atol=1e-5)
    np.testing.assert_allclose(gpt.attention("abc", "def").maps[0].weights, one.weights, atol=1e-6)
    with pytest.raises(
        InputError, match="texts\\[1\\] has 65 tokens, its answer included, and the model has positions"
    ):
        gpt.attention(["a", "b" * 65])


def test_the_inputs_of_a_prefix_lm_see_each_other(make_decoder):
    sizes = {"embed_dim": 12, "num_heads": 3, "head_dim": 5, "mlp_dim": 17, "num_layers": 2}
    model = make_decoder(T5DecoderConfig(vocab_size=384, full_prefix=True, **sizes))
    (alone,), (answered,) = (model.attention(*texts).maps for texts in (("abc",), ("abc", "de")))
    assert (alone.kind, alone.queries) == ("prefix", ("a", "b", "c", "</s>"))
    assert alone.weights.all(), "given whole they see each other whole"
    # EOS, which begins the answer, sees what is before it and is seen by what is behind it.
    assert answered.queries == ("a", "b", "c", "</s>", "d", "e")
    assert_weights(answered)
    seen = np.tri(6, dtype=bool)
    seen[:3, :3] = True
    assert ((answered.weights > 0) == seen).all()
    expected = sown(model, jnp.array([[100, 101, 102]]), jnp.array([[1, 103, 104]]))
    np.testing.assert_allclose(answered.weights, stacked(expected["decoder"]), atol=1e-5)


def test_an_encoder_decoder_looks_in_three_ways(model):
    maps = model.attention("abcd", "xyz")
    assert maps.kinds == ("encoder", "decoder", "cross")
    expected = sown(model, jnp.array([[100, 101, 102, 103, 1]]), jnp.array([[0, 123, 124, 125]]))
    decoder = expected["decoder"]
    for kind, tree, name in (
        ("encoder", expected["encoder"], "self_attention"),
        ("decoder", decoder, "self_attention"),
        ("cross", decoder, "cross_attention"),
    ):
        assert_weights(maps[kind])
        np.testing.assert_allclose(maps[kind].weights, stacked(tree, name), atol=1e-5)
    assert maps["cross"].keys == maps["encoder"].queries == ("a", "b", "c", "d", "</s>")
    assert maps["cross"].queries == maps["decoder"].keys == ("<pad>", "x", "y", "z")
    assert not np.triu(maps["decoder"].weights, 1).any()


def test_without_an_answer_an_encoder_decoder_reads_its_own(model):
    written = model.generate_ids([[100, 101, 1]], max_length=6)[0]
    eos = np.flatnonzero(np.append(written, 1) == 1)[0]
    (maps,) = model.attention(["ab"], max_length=6)
    decoder = sown(model, jnp.array([[100, 101, 1]]), jnp.array([[0, *written[:eos]]], jnp.int32))["decoder"]
    np.testing.assert_allclose(maps["cross"].weights, stacked(decoder, "cross_attention"), atol=1e-5)


def test_stacks_that_share_their_layers(make_params):
    config = T5Config(
        384,
        num_heads=3,
        embed_dim=12,
        head_dim=5,
        mlp_dim=17,
        num_encoder_layers=2,
        num_decoder_layers=2,
        stacks_share_parameters=True,
        dropout_rate=0.0,
    )
    module, ids = config.build(), jnp.ones((1, 2), jnp.int32)
    model = PretrainedEncoderDecoder(config, module, make_params(module, 0, ids, ids), bytes_tokenizer())
    maps = model.attention("abcd", "xyz")
    decoder = sown(model, jnp.array([[100, 101, 102, 103, 1]]), jnp.array([[0, 123, 124, 125]]))["decoder"]
    for call, kind in enumerate(("encoder", "decoder")):
        assert_weights(maps[kind])
        np.testing.assert_allclose(maps[kind].weights, stacked(decoder, call=call), atol=1e-5)


BAD = {
    "no such layer": (lambda maps: maps.plot(layer=4), "layer=4 is not one of the self attention's; choose 0 to 3"),
    "no such head": (lambda maps: maps.html(head=-1), "head=-1 is not one of the self attention's; choose 0 to 2"),
    "no such kind": (lambda maps: maps["cross"], "kind='cross' is not an attention of this model; choose one of self"),
    "no page": (
        lambda maps: maps.html("page.htm"),
        "path=page.htm is not the name of a page; choose one that ends in .html",
    ),
    "no folder": (lambda maps: maps.html("/absent/page.html"), "lies in no folder"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_input(bert, name):
    call, message = BAD[name]
    with pytest.raises(InputError, match=message):
        call(bert.attention("the wall"))


@pytest.mark.parametrize(
    ("texts", "answers", "message"),
    [
        (["a", "b"], ["c"], "there are 2 texts and 1 answers; give one answer for each text"),
        ("a", ["c"], "not both a text or both a list"),
        ([], None, "texts=\\[\\] is empty"),
        ("a <extra_id_100>", None, "<extra_id_100>"),
    ],
)
def test_answers_that_do_not_fit(model, texts, answers, message):
    with pytest.raises(InputError, match=message):
        model.attention(texts, answers)


def test_sums_of_tokens_are_not_looked_at(make_encoder):
    linformer = make_encoder(BertConfig(embed_dim=12, attention=Linformer(4), **SIZES))
    with pytest.raises(InputError, match=r"model.attention=Linformer\(.*: its weights are those of sums of tokens"):
        linformer.attention("the bottles")


def test_texts_that_are_too_long_or_have_no_tokenizer(bert):
    with pytest.raises(
        InputError, match="the text has .* tokens, special ones included, and the model takes max_length=70"
    ):
        bert.attention("wall " * 80)
    with pytest.raises(InputError, match="came without a tokenizer"):
        replace(bert, tokenizer=None).attention("the wall")


class _Frame(HTMLParser):
    """The page inside a frame."""

    page = ""

    def handle_starttag(self, tag, attributes):
        if tag == "iframe":
            self.page = dict(attributes)["srcdoc"]


def test_a_notebook_shows_the_page_in_a_frame_unless_it_is_too_large(bert, monkeypatch):
    maps = bert.attention("the wall")
    frame = _Frame()
    frame.feed(maps._repr_html_())
    assert frame.page == maps.html()
    monkeypatch.setattr(attention, "_MOST_IN_NOTEBOOK", 10)
    assert "too many to keep in a notebook" in maps._repr_html_()


def test_the_page_is_written_whole(bert, tmp_path):
    page = bert.attention("the wall").html(tmp_path / "page.html", layer=3, head=1)
    assert (tmp_path / "page.html").read_text() == page
    assert '"start":{"kind":0,"layer":3,"head":1}' in page
    assert [path.name for path in tmp_path.iterdir()] == ["page.html"]


def test_pictures_of_one_head_of_a_layer_and_of_all():
    weights = np.random.default_rng(0).random((2, 3, 4, 5)).astype(np.float32)
    maps = AttentionMaps((AttentionMap("cross", ("a", "b", "c", "d"), tuple("vwxyz"), weights),))

    def shown(picture):
        return [axes.images[0].get_array() for axes in picture.axes if axes.images and axes.get_label() != "<colorbar>"]

    np.testing.assert_array_equal(shown(maps.plot("cross", 1, 2)), weights[1:, 2])
    np.testing.assert_array_equal(shown(maps.plot(layer=1)), weights[1])
    np.testing.assert_array_equal(shown(maps.plot(head=1)), weights[:, 1])
    np.testing.assert_array_equal(shown(maps.plot()), weights.reshape(6, 4, 5))


def test_maps_know_their_model_and_text(bert):
    maps = bert.attention(["the wall", ("the wall", "and waits")])
    assert [one.text for one in maps] == ["the wall", "the wall | and waits"]
    assert maps[0].model == bert.title
    assert maps[0].plot(layer=1).get_suptitle().replace("\n", " ") == f"{bert.title}: self attention, layer 1"


# --- Transformers as the oracle


def oracle_model(transformers, torch, family, **sizes):
    """A model whose parameters are all of order one, so that no head looks at all alike."""
    torch.manual_seed(0)
    config = getattr(transformers, f"{family}Config")(**sizes, attn_implementation="eager")
    name = {"Bert": "BertModel", "GPT2": "GPT2LMHeadModel", "T5": "T5ForConditionalGeneration"}[family]
    model = getattr(transformers, name)(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(0.5 * torch.randn_like(parameter))
    return model


CASES = {
    "Bert": {"vocab_size": 43, "hidden_size": 12, "num_hidden_layers": 3, "num_attention_heads": 3}
    | {"intermediate_size": 17, "max_position_embeddings": 40},
    "GPT2": {"vocab_size": 43, "n_positions": 40, "n_embd": 12, "n_layer": 3, "n_head": 3, "bos_token_id": 1}
    | {"eos_token_id": 1},
    "T5": {"vocab_size": 43, "d_model": 12, "num_heads": 3, "d_kv": 5, "d_ff": 17, "num_layers": 2}
    | {"num_decoder_layers": 3, "relative_attention_num_buckets": 8, "relative_attention_max_distance": 11},
}


@pytest.mark.parametrize("family", CASES)
def test_weights_are_those_of_transformers(torch, transformers, tmp_path, family):
    theirs = oracle_model(transformers, torch, family, **CASES[family])
    theirs.save_pretrained(tmp_path)
    imported = import_folder(tmp_path)
    module = imported.config.build()
    random = np.random.default_rng(0)
    ids, lengths = random.integers(4, 43, (3, 19)), np.array([19, 12, 1])
    valid = np.arange(19) < lengths[:, None]
    targets = random.integers(4, 43, (3, 9))
    with torch.no_grad():
        more = {"decoder_input_ids": torch.tensor(targets)} if family == "T5" else {}
        mask = torch.tensor(valid).long()
        outputs = theirs(torch.tensor(ids), attention_mask=mask, output_attentions=True, **more)
    arguments = (ids, targets) if family == "T5" else (ids,)
    weights = sown_weights(module, imported.params, *map(jnp.asarray, arguments), inputs_valid=jnp.asarray(valid))
    stacks = {"Bert": ("encoder",), "GPT2": ("decoder",), "T5": ("encoder", "decoder")}[family]
    pairs = [(weights[stack], "self_attention", getattr(outputs, f"{stack}_attentions", None)) for stack in stacks]
    if family == "T5":
        pairs.append((weights["decoder"], "cross_attention", outputs.cross_attentions))
    else:
        pairs = [(weights[stacks[0]], "self_attention", outputs.attentions)]
    for tree, name, expected in pairs:
        ours = np.asarray(tree["layers"][name]["weights"][0])  # [N B H L M]
        expected = np.stack([layer.numpy() for layer in expected])
        assert expected.shape == ours.shape
        assert expected.max() > 0.9, "some look at one token alone"
        for row, length in enumerate(lengths):
            # What padding itself looks at means nothing.
            queries = slice(None) if ours.shape[3] == 9 else slice(length)
            np.testing.assert_allclose(ours[:, row, :, queries], expected[:, row, :, queries], atol=1e-5)
            if ours.shape[4] == 19:
                assert not ours[:, row, :, queries, length:].any()
