import re

import numpy as np
import pytest
from sentencepiece import SentencePieceProcessor, sentencepiece_model_pb2

from t5x_lite.data import SentencePiece, load_tokenizer, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.config import saved_config
from t5x_lite.tokenizers.sentencepiece import AlbertTokenizer, XlmRobertaTokenizer


def train(layout, texts):
    config = SentencePiece(vocab_size=110, character_coverage=1.0, layout=layout)
    return make_tokenizer(config, lambda: iter(texts))


@pytest.fixture(scope="module")
def texts(corpus):
    return [f"{text} In 1,{i}, 2,{i} and 3,{i}, 1, 2, 3, 3, 3," for i, text in enumerate(corpus.texts)]


@pytest.fixture(scope="module")
def albert(texts):
    return train("albert", texts)


@pytest.fixture(scope="module")
def xlm_roberta(texts):
    return train("xlm-roberta", texts)


@pytest.fixture(scope="module")
def siglip(texts):
    return train("siglip", texts)


@pytest.fixture(params=["albert", "xlm_roberta"])
def tokenizer(request):
    return request.getfixturevalue(request.param)


def pieces_of(model):
    return [piece.piece for piece in sentencepiece_model_pb2.ModelProto.FromString(model).pieces]


def test_the_ids_of_albert(albert):
    v = albert.vocabulary
    assert (v.pad_id, v.unk_id, v.cls_id, v.sep_id, v.mask_id, v.eos_id) == (0, 1, 2, 3, 4, 3)
    assert pieces_of(albert.model)[:5] == ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert (v.size, v.num_sentinels, albert.mask_token) == (110, 0, "[MASK]")


def test_the_ids_of_xlnet(texts, tmp_path):
    """Those of its published model; a row ends with <cls>, a document with <eod>, and capitals stay."""
    xlnet = train("xlnet", texts)
    v = xlnet.vocabulary
    assert pieces_of(xlnet.model)[:9] == ["<unk>", "<s>", "</s>", "<cls>", "<sep>", "<pad>", "<mask>", "<eod>", "<eop>"]
    assert (v.unk_id, v.cls_id, v.sep_id, v.pad_id, v.mask_id, v.eos_id) == (0, 3, 4, 5, 6, 7)
    assert v.cls_last and xlnet.mask_token == "<mask>"
    one, same, other = (list(xlnet.encode(text)) for text in ("Thé ``the''", 'The "the"', 'the "the"'))
    assert one == same != other
    xlnet.save(tmp_path)
    assert load_tokenizer(tmp_path).vocabulary == v


def test_the_ids_of_xlm_roberta(xlm_roberta):
    """fairseq's dictionary begins with <s>, <pad>, </s>, <unk>; the pieces after the model's own three follow."""
    v = xlm_roberta.vocabulary
    assert (v.cls_id, v.pad_id, v.sep_id, v.unk_id, v.eos_id) == (0, 1, 2, 3, 2)
    assert (v.size, v.mask_id, v.num_sentinels, xlm_roberta.mask_token) == (112, 111, 0, "<mask>")
    processor = SentencePieceProcessor(model_proto=xlm_roberta.model)
    text = "the model reads a row, 私は"
    assert xlm_roberta.encode(text) == [piece + 1 for piece in processor.encode(text)]
    assert xlm_roberta.encode("ж") == [processor.piece_to_id("▁") + 1, 3]


def test_siglip_reads_words_without_capitals_and_punctuation(siglip, tmp_path, transformers):
    """As Transformers reads them, at the end of a text as EOS, with which rows are filled up."""
    v = siglip.vocabulary
    assert (v.pad_id, v.eos_id, v.unk_id, v.num_sentinels, v.size) == (1, 1, 2, 0, 110)
    (tmp_path / "spiece.model").write_bytes(siglip.model)
    theirs = transformers.SiglipTokenizer(str(tmp_path / "spiece.model"))
    texts = [
        "The MODEL  reads,\ta (row)!",
        "  it's 1,2 and-then...\n",
        "ΟΔΟΣ İ ж",
        "read",
        "a",
        "?!",
    ]
    expected = [theirs(text)["input_ids"][:-1] for text in texts]
    assert [ids.tolist() for ids in siglip.encode_batch(texts)] == expected
    assert [siglip.encode(text) for text in texts] == expected
    assert siglip.decode(siglip.encode("The MODEL reads.")) == "the model reads"


def test_offsets_of_siglip_point_into_the_text_as_it_was(siglip):
    text = "  The MODEL:  rows,\n(read).  "
    ids, spans = siglip.encode_with_offsets([text])[0]
    assert ids.tolist() == siglip.encode(text)
    letters = "".join(text[start:end] for start, end in spans)
    assert "".join(letters.lower().split()) == "themodelrowsread"
    assert all(0 <= start <= end <= len(text) for start, end in spans)
    assert [one.spans.tolist() for one in siglip.encode_with_offsets(["", "?!"])] == [[], []]


def test_texts_come_back(tokenizer, corpus):
    for text in corpus.texts[:50]:
        ids = tokenizer.encode(text)
        assert tokenizer.decode(ids) == text
        assert not set(ids) & set(tokenizer.vocabulary.special_ids)


def test_batches_encode_like_single_texts(tokenizer, corpus):
    texts = [*corpus.texts[:20], "", "  Two  blanks\n", "ж猫ж"]
    arrays = tokenizer.encode_batch(texts)
    assert all(array.dtype == np.int32 for array in arrays)
    assert [array.tolist() for array in arrays] == [tokenizer.encode(text) for text in texts]


def test_masks_are_written_and_read(tokenizer):
    mask = tokenizer.mask_token
    ids = tokenizer.encode(f"the {mask} reads{mask} row")
    assert ids.count(tokenizer.vocabulary.mask_id) == 2
    assert tokenizer.decode(ids) == f"the {mask} reads {mask} row"
    v = tokenizer.vocabulary
    assert tokenizer.decode([v.cls_id, *ids, v.sep_id, v.pad_id, v.size, -1]) == tokenizer.decode(ids)
    assert tokenizer.encode(tokenizer.decode(ids)) == ids


def test_written_special_tokens_are_text_in_a_batch(tokenizer):
    special = set(tokenizer.vocabulary.special_ids) - {tokenizer.vocabulary.unk_id}
    for name in tokenizer._special_ids:
        assert name == "<unk>" or special & set(tokenizer.encode(f"the {name}"))
        assert not special & set(tokenizer.encode_batch([f"the {name} row {name}"])[0].tolist())


def test_words_begin_where_they_do(tokenizer, corpus):
    continues = tokenizer.vocabulary.continues_word()
    for text in corpus.texts[:60]:
        assert (~continues[tokenizer.encode(text)]).sum() == len(text.split())
    assert not continues[list(tokenizer.vocabulary.special_ids)].any()


def test_albert_drops_capitals_and_accents(albert):
    assert albert.encode("``Thé'' MODEL") == albert.encode('"the" model')
    cased = AlbertTokenizer(albert.model, lowercase=False, keep_accents=True)
    assert cased.fingerprint != albert.fingerprint
    assert cased.encode("thé") != albert.encode("thé")


def test_albert_splits_commas_from_numbers(albert, xlm_roberta, texts):
    """Lan et al.'s code takes a comma after a digit for a piece of its own; XLM-R's training does not."""
    glued = re.compile(r"\d,$")
    pieces, others = pieces_of(albert.model), pieces_of(xlm_roberta.model)
    chosen = {pieces[i] for ids in albert.encode_batch(texts) for i in ids}
    assert not any(map(glued.search, chosen))
    assert any(glued.search(others[i - 1]) for ids in xlm_roberta.encode_batch(texts) for i in ids)


def test_a_treated_albert_model_stays_as_it_is(albert):
    assert AlbertTokenizer(albert.model).model == albert.model


def test_special_tokens_that_a_model_takes_for_text(albert):
    """Some models declare them as user-defined symbols, which SentencePiece finds in any text."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(albert.model)
    for piece in proto.pieces[2:5]:
        piece.type = piece.USER_DEFINED
    model = proto.SerializeToString()
    assert 4 in SentencePieceProcessor(model_proto=model).encode("the [MASK]")
    assert 4 not in AlbertTokenizer(model, lowercase=False).encode_batch(["the [MASK]"])[0]


def test_saving_and_loading(albert, xlm_roberta, siglip, tmp_path):
    tokenizers = {"a": albert, "b": xlm_roberta, "c": AlbertTokenizer(albert.model, lowercase=False), "d": siglip}
    for name, tokenizer in tokenizers.items():
        tokenizer.save(tmp_path / name)
        config = saved_config(tokenizer, tmp_path / name)
        for loaded in (load_tokenizer(tmp_path / name), make_tokenizer(config, lambda: iter(()))):
            assert type(loaded) is type(tokenizer)
            assert loaded.fingerprint == tokenizer.fingerprint
            assert loaded.vocabulary == tokenizer.vocabulary
    assert len({tokenizer.fingerprint for tokenizer in tokenizers.values()}) == 4


@pytest.mark.parametrize("algorithm", ["unigram", "bpe"])
def test_the_ids_of_big_bird(texts, tmp_path, algorithm):
    """Capitals, accents and commas stay as they are; both algorithms do."""
    config = SentencePiece(vocab_size=110, character_coverage=1.0, layout="big-bird", algorithm=algorithm)
    big_bird = make_tokenizer(config, lambda: iter(texts))
    v = big_bird.vocabulary
    assert pieces_of(big_bird.model)[:7] == ["<pad>", "</s>", "<s>", "<unk>", "[CLS]", "[SEP]", "[MASK]"]
    assert (v.pad_id, v.unk_id, v.cls_id, v.sep_id, v.mask_id, v.eos_id) == (0, 3, 4, 5, 6, 5)
    assert big_bird.decode(big_bird.encode("In 1,2 and 3, 1")) == "In 1,2 and 3, 1"
    big_bird.save(tmp_path)
    assert load_tokenizer(tmp_path).fingerprint == big_bird.fingerprint


def test_training_is_deterministic(tokenizer, texts):
    assert train(tokenizer.layout, texts).fingerprint == tokenizer.fingerprint


def test_models_of_another_layout(albert, xlm_roberta, spiece, corpus):
    with pytest.raises(InputError, match=r"m\.model has no \[CLS\] or \[SEP\] or \[MASK\] piece"):
        AlbertTokenizer(spiece.model, name="m.model")
    for model in (albert.model, spiece.model):
        with pytest.raises(InputError, match=r"m\.model does not begin with the pieces <unk>, <s>, </s>"):
            XlmRobertaTokenizer(model, name="m.model")
    bpe = make_tokenizer(SentencePiece(vocab_size=90, algorithm="bpe"), corpus.documents)
    with pytest.raises(InputError, match=r"is not a unigram model.*layout='albert'"):
        AlbertTokenizer(bpe.model)
    with pytest.raises(InputError, match="is not a SentencePiece model"):
        XlmRobertaTokenizer(b"no model")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"layout": "bert"}, "layout='bert' is unknown; choose t5, siglip, albert, xlm-roberta, xlnet or big-bird"),
        ({"layout": "albert", "algorithm": "bpe"}, "algorithm='bpe' does not go with layout='albert'"),
    ],
)
def test_configs_are_checked(options, message):
    with pytest.raises(InputError, match=message):
        SentencePiece(**options)
