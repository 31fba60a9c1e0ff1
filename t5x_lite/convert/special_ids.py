"""The ids of special tokens that a config.json repeats from the tokenizer."""

from t5x_lite.data import Tokenizer

_ROLES = {"pad_token_id": "pad_id", "bos_token_id": "cls_id", "eos_token_id": "eos_id"}


def special_ids(tokenizer: Tokenizer | None, **published: int) -> dict[str, int]:
    """The ids that `published` names: the tokenizer's where it has them, else the family's published ones."""
    vocabulary = None if tokenizer is None else tokenizer.vocabulary
    ours = {name: getattr(vocabulary, _ROLES[name], None) for name in published}
    return {name: published[name] if ours[name] is None else ours[name] for name in published}
