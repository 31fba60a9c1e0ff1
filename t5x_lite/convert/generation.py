"""The special ids in a config.json, which repeats them from the tokenizer, and a model's defaults of generation."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_lite.data import Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.files import read_json
from t5x_lite.models import ModelConfig

_ROLES = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "eos_id"}


def special_ids(vocabulary: Vocabulary | None, **published: int) -> dict[str, int]:
    """The ids that `published` names: the vocabulary's where it has them, else the family's published ones."""
    ours = {name: getattr(vocabulary, _ROLES[name], None) for name in published}
    return {name: published[name] if ours[name] is None else ours[name] for name in published}


def read_vocabulary(theirs: dict[str, Any], published: Mapping[str, int], config: ModelConfig) -> Vocabulary:
    """The special ids of a model without a tokenizer: those in its config.json, else the `published` ones.

    Without padding, the id that ends a text stands for it too, as in Transformers; without both, id 0 stands for them
    and for what is unknown.
    """
    size = config.vocab_size
    pad, eos = (read_id({**published, **theirs}, f"{role}_token_id", size) for role in ("pad", "eos"))
    pad = getattr(config, "pad_id", None) if pad is None else pad
    if pad is None and eos is None:
        return Vocabulary(size, 0, 0, 0)
    if eos is None:
        eos = 0 if pad else min(1, size - 1)
    return Vocabulary(size, eos if pad is None else pad, eos, min(2, size - 1))


def read_id(theirs: dict[str, Any], name: str, vocab_size: int) -> int | None:
    """The id in a field, the first of several; None where the vocabulary does not have it."""
    value = theirs.get(name)
    value = value[0] if isinstance(value, list) and value else value
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size
    return value if known else None


def read_generation(
    folder: Path, theirs: dict[str, Any], config: ModelConfig, vocabulary: Vocabulary
) -> GenerationDefaults:
    """From generation_config.json alone where there is one, else from config.json, as Transformers does."""
    path = folder / "generation_config.json"
    stated = read_json(path) if path.exists() else theirs
    start, first, last, eos = (
        read_id(stated, f"{name}_token_id", config.vocab_size)
        for name in ("decoder_start", "forced_bos", "forced_eos", "eos")
    )
    usual = config.decoder_start_id(pad_id=vocabulary.pad_id, eos_id=vocabulary.eos_id)
    # EOS stays possible even where it is listed; words of several ids are left out.
    words = stated.get("bad_words_ids") or []
    suppressed = {word[0] for word in words if isinstance(word, list) and len(word) == 1} - {eos}
    return GenerationDefaults(
        start_id=None if start == usual else start,
        forced_first_id=first,
        forced_last_id=last,
        suppressed_ids=tuple(sorted(suppressed)),
        ends=eos is not None,
    )
