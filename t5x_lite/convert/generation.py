"""What a folder says of special ids, which its config.json repeats from the tokenizer, and of how its model writes."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from t5x_lite.data import Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.models import ModelConfig
from t5x_lite.tokenizers.base import read_json

GENERATION_FILE = "generation_config.json"
_ROLES = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "eos_id"}


def special_ids(vocabulary: Vocabulary | None, **published: int) -> dict[str, int]:
    """The ids that `published` names: the vocabulary's where it has them, else the family's published ones."""
    ours = {name: getattr(vocabulary, _ROLES[name], None) for name in published}
    return {name: published[name] if ours[name] is None else ours[name] for name in published}


def read_vocabulary(theirs: dict[str, Any], published: Mapping[str, int], config: ModelConfig) -> Vocabulary:
    """What is known of a model's ids without its tokenizer, from its config.json.

    Where that names no padding, the id that ends a text stands for it too, as in Transformers; where it names neither,
    id 0 stands for both, and for what is unknown. `published` says what silence means.
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
    """The id in a field, the first of several; None where it is no id of this vocabulary, and so is never met."""
    value = theirs.get(name)
    value = value[0] if isinstance(value, list) and value else value
    known = isinstance(value, int) and not isinstance(value, bool) and 0 <= value < vocab_size
    return value if known else None


def read_generation(
    folder: Path, theirs: dict[str, Any], config: ModelConfig, vocabulary: Vocabulary
) -> GenerationDefaults:
    """From generation_config.json alone where there is one, else from config.json, as Transformers does."""
    path = folder / GENERATION_FILE
    stated = read_json(path) if path.exists() else theirs
    start, first, last, eos = (
        read_id(stated, f"{name}_token_id", config.vocab_size)
        for name in ("decoder_start", "forced_bos", "forced_eos", "eos")
    )
    usual = config.decoder_start_id(pad_id=vocabulary.pad_id, eos_id=vocabulary.eos_id)
    # EOS stays possible though it be named; words of several ids are none of ours.
    words = stated.get("bad_words_ids") or []
    suppressed = {word[0] for word in words if isinstance(word, list) and len(word) == 1} - {eos}
    return GenerationDefaults(
        start_id=None if start == usual else start,
        forced_first_id=first,
        forced_last_id=last,
        suppressed_ids=tuple(sorted(suppressed)),
        ends=eos is not None,
    )


def describe_generation(generation: GenerationDefaults) -> dict[str, Any]:
    """The same as fields of a config.json."""
    described: dict[str, Any] = {
        "forced_bos_token_id": generation.forced_first_id,
        "forced_eos_token_id": generation.forced_last_id,
    }
    if generation.suppressed_ids:
        described["bad_words_ids"] = [[token_id] for token_id in generation.suppressed_ids]
    return described
