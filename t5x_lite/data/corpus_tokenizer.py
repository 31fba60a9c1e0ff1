"""The tokenizer of a corpus: loaded, or trained on a sample of its sentences and kept."""

import contextlib
import functools
from pathlib import Path
from typing import NamedTuple

import numpy as np
from etils import epath

from t5x_lite.data.records.base import EmptyCorpusError, Source, digest
from t5x_lite.data.splits import Progress
from t5x_lite.data.workers import Report, Result, Workers
from t5x_lite.errors import InputError
from t5x_lite.files import write_folder
from t5x_lite.tokenizers.config import (
    Tokenizer,
    TokenizerConfig,
    is_trained,
    load_tokenizer,
    make_tokenizer,
    save_tokenizer,
)
from t5x_lite.tokenizers.training import Sample, common_limit, draw_sentences

_KEY_FORMAT = 3
_MARGIN = 8


def cached_tokenizer(
    source: Source, source_key: str, config: TokenizerConfig, cache: epath.Path, report: Progress, workers: Workers
) -> Tokenizer:
    """The tokenizer of a corpus, kept in the folder `tokenizers` of `cache` if it is trained."""
    if not is_trained(config):
        return make_tokenizer(config, source.documents)
    target = cache / "tokenizers" / digest(_KEY_FORMAT, source_key, config)
    if not _is_tokenizer(target):
        shards = source.shards()
        if len(shards) > 1:
            _train_on_shards(tuple(shards), config, target, report, workers)
        else:
            report("train tokenizer", None)
            made = make_tokenizer(config, source.documents)
            write_folder(target, functools.partial(save_tokenizer, made), _is_tokenizer)
    return load_tokenizer(target)


def _is_tokenizer(folder: epath.PathLike) -> bool:
    with contextlib.suppress(InputError, OSError):
        return load_tokenizer(folder) is not None
    return False


class _Shards(NamedTuple):
    sources: tuple[Source, ...]
    limit: float
    """For the numbers that sentences draw; 0 for one that each shard finds."""


def _train_on_shards(
    shards: tuple[Source, ...], config: TokenizerConfig, target: epath.Path, report: Progress, workers: Workers
) -> None:
    def write(folder: epath.PathLike) -> None:
        folder, progress = epath.Path(folder), functools.partial(report, "sample sentences")
        draw = functools.partial(workers.map, num_shards=len(shards), folder=folder, report=progress)
        samples = [_to_sample(one) for one in draw(_draw, _Shards(shards, 0.0), name="sample")]
        limit = common_limit(samples)
        # A shard with far more text than the others kept too few sentences to go by that limit.
        small = [number for number, sample in enumerate(samples) if sample.limit < limit]
        if small:
            again = _Shards(tuple(shards[number] for number in small), limit)
            drawn = workers.map(_draw, again, len(small), folder, "larger-sample", progress)
            for number, one in zip(small, drawn, strict=True):
                samples[number] = _to_sample(one)
        sentences = [text for sample in samples for number, text in sample.drawn if number < limit]
        report("train tokenizer", None)
        save_tokenizer(make_tokenizer(config, lambda: iter(sentences)), folder)
        for path in folder.glob("*.npz"):
            path.unlink(missing_ok=True)

    write_folder(target, write, _is_tokenizer, lambda folder: any(Path(folder).glob("*.npz")))


def _draw(shards: _Shards, number: int, report: Report) -> Result:
    share = min(1.0, _MARGIN / len(shards.sources))
    options = {"limit": shards.limit, "halve": False} if shards.limit else {"share": share}
    sample = Sample(1.0, [], 0, 0)
    with contextlib.suppress(EmptyCorpusError):
        sample = draw_sentences(shards.sources[number].documents(), seed=number, **options)
    text = "\n".join(sentence for _, sentence in sample.drawn)  # a sentence has no end of a line in it
    return {
        "numbers": np.array([number for number, _ in sample.drawn], np.float64),
        "text": np.frombuffer(text.encode(), np.uint8),
        "counts": np.array([sample.sentences, sample.characters], np.int64),
        "limit": np.array(sample.limit),
    }


def _to_sample(result: Result) -> Sample:
    text = result["text"].tobytes().decode()
    drawn = list(zip(result["numbers"].tolist(), text.split("\n"), strict=True)) if text else []
    return Sample(float(result["limit"]), drawn, *result["counts"].tolist())
