"""What is known of a vocabulary before there is a tokenizer, against the tokenizer itself."""

from dataclasses import replace

import pytest

from t5x_lite.data import ByteLevelBPE, Bytes, SentencePiece, WordPiece, make_tokenizer
from t5x_lite.tokenizers.config import expected_vocabulary

SPECIAL = ("pad_id", "eos_id", "unk_id", "cls_id", "sep_id", "mask_id", "num_sentinels", "first_sentinel_id")


def documents():
    return iter([f"The {word} of number {n} stands on the wall." for n in range(40) for word in ("lamp", "cat")])


@pytest.mark.parametrize(
    "config",
    [
        SentencePiece(vocab_size=36, character_coverage=1.0),
        SentencePiece(vocab_size=36, character_coverage=1.0, layout="albert"),
        SentencePiece(vocab_size=36, character_coverage=1.0, layout="xlm-roberta"),
        SentencePiece(vocab_size=40, character_coverage=1.0, layout="xlnet"),
        WordPiece(vocab_size=60, character_coverage=1.0),
        ByteLevelBPE(vocab_size=270),
        ByteLevelBPE(vocab_size=270, layout="gpt2"),
        Bytes(),
        Bytes(extra_ids=5),
    ],
    ids=str,
)
def test_special_ids_and_size_are_those_of_the_tokenizer(config):
    expected, made = expected_vocabulary(config, 1000), make_tokenizer(config, documents).vocabulary
    if isinstance(config, SentencePiece) and config.layout != "t5":
        made = replace(made, first_sentinel_id=-1)
    assert {name: getattr(expected, name) for name in SPECIAL} == {name: getattr(made, name) for name in SPECIAL}
    assert expected.size == made.size


def test_where_the_size_stands_in_a_file_it_is_the_models():
    for config in (WordPiece(file="absent"), ByteLevelBPE(file="absent"), SentencePiece(model_file="absent")):
        assert expected_vocabulary(config, 1000).size == 1000
    assert expected_vocabulary(SentencePiece(model_file="absent", extra_ids=0), 1000).num_sentinels == 100
