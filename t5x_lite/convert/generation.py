"""What a folder says of how its model writes text."""

from pathlib import Path
from typing import Any

from t5x_lite.convert.special_ids import read_id
from t5x_lite.data import Vocabulary
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.models import ModelConfig
from t5x_lite.tokenizers.base import read_json

GENERATION_FILE = "generation_config.json"


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
