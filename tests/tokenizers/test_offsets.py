"""Where tokens stand in their text: the answers that models point at are cut out by it."""

import itertools

import numpy as np
import pytest

from t5x_lite.data import ByteLevelBPE, Bytes, SentencePiece, WordPiece, make_tokenizer
from t5x_lite.errors import InputError
from t5x_lite.tokenizers.base import Tokenizer

PLAIN = ["the model reads a row of ids", "  while   we wait", "one", "", " "]
OTHER = [
    "naïve café “quoted” ½ ﬁne",
    "e\u0301te\u0301 A\u030angstrom",
    "東京に行きました。猫😀猫",
    "ΣΊΣΥΦΟΣ ``so'' İstanbul",
    "zero\u200bwidth\u00a0blank\tand\nlines",
    "<extra_id_0> [MASK] </s>",
]
CONFIGS = {
    "wordpiece": WordPiece(vocab_size=150),
    "wordpiece, cased": WordPiece(vocab_size=150, lowercase=False),
    "byte-level": ByteLevelBPE(vocab_size=400),
    "t5": SentencePiece(vocab_size=100, extra_ids=10, character_coverage=1.0),
    "albert": SentencePiece(vocab_size=100, character_coverage=1.0, layout="albert"),
    "xlm-roberta": SentencePiece(vocab_size=100, character_coverage=1.0, layout="xlm-roberta"),
    "bytes": Bytes(),
}


@pytest.fixture(scope="module", params=CONFIGS)
def tokenizer(request, corpus) -> Tokenizer:
    return make_tokenizer(CONFIGS[request.param], corpus.documents)


def test_ids_are_those_of_batches(tokenizer):
    texts = PLAIN + OTHER
    for text, (ids, spans), expected in zip(
        texts, tokenizer.encode_with_offsets(texts), tokenizer.encode_batch(texts), strict=True
    ):
        assert ids.tolist() == expected.tolist(), text
        assert ids.dtype == spans.dtype == np.int32 and spans.shape == (len(ids), 2)


def test_spans_go_through_the_text_and_miss_nothing(tokenizer):
    for text, (_, spans) in zip(PLAIN + OTHER, tokenizer.encode_with_offsets(PLAIN + OTHER), strict=True):
        assert (spans[:, 0] <= spans[:, 1]).all()
        assert (np.diff(spans, axis=0) >= 0).all(), text
        covered = {index for start, end in spans.tolist() for index in range(start, end)}
        assert covered <= set(range(len(text)))
        # What no tokenizer writes: blanks, marks without width, accents that BERT and ALBERT drop.
        missed = [c for index, c in enumerate(text) if index not in covered and c.isalnum()]
        assert not missed, (text, missed)


def test_words_are_cut_out_whole(tokenizer):
    for text, (_, spans) in zip(PLAIN, tokenizer.encode_with_offsets(PLAIN), strict=True):
        starts = list(itertools.accumulate(text, lambda count, c: count + (c == " "), initial=0))
        pieces: dict[int, list[tuple[int, int]]] = {}
        for start, end in spans.tolist():
            if text[start:end].strip():
                pieces.setdefault(starts[start + len(text[start:end]) - len(text[start:end].lstrip())], []).append(
                    (start, end)
                )
        words = [text[found[0][0] : found[-1][1]].strip() for found in pieces.values()]
        assert words == text.split()


def test_a_tokenizer_that_cannot_tell_says_so():
    class Deaf(Tokenizer):
        encode = decode = encode_batch = piece = save = fingerprint = None

    with pytest.raises(InputError, match="a Deaf cannot tell where in a text its tokens stand"):
        Deaf().encode_with_offsets(["a"])
