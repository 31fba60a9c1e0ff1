"""How well a retriever that is trained from nothing finds what it is asked for, and what a reader makes of it.

    python benchmarks/open_book.py [--out FOLDER] [--squad FILE] [--masked] [--seeds 1]

Without --squad on made-up towns: each has a passage of five sentences, each sentence a fact that stands nowhere else in
the corpus, and each fact a question. With --squad on a file of SQuAD's: its contexts are the corpus, and its questions
are asked without them. The retriever begins with the inverse cloze task and then learns from four fifths of the
questions, with a reader; with --masked it has REALM's pretraining in between: masked names, of the towns in other
sentences that tell four fifths of the facts, of SQuAD's contexts in these, and an index that is refreshed. Of the other
questions: the share with an answer in the five best passages after each stage, with random parameters, and by BM25
(`pip install -e '.[test]'`), and the share of answers that are exactly right. A run that was cut short goes on with the
same --out.
"""

import argparse
import json
import random
import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

import t5x_lite
from t5x_lite.cli.processes import keep_memory
from t5x_lite.data import Data, JsonlFiles, OpenQuestions, SquadFiles, TextFiles, WordPiece
from t5x_lite.models import BertConfig, RealmConfig
from t5x_lite.objectives import InverseCloze, Objective, OpenQuestionAnswering, RetrievalMaskedLanguageModel
from t5x_lite.optim.optimizers import AdamW
from t5x_lite.optim.schedules import LinearDecay
from t5x_lite.runs.loop import train
from t5x_lite.training import Checkpointing, Evaluation, Experiment, Logging
from t5x_lite.training.initialization import FromModel

TOWNS, FOUND = 300, 5
CONSONANTS, VOWELS = "bdfgklmnprstvz", "aeiou"
FACTS = (
    ("The river of {town} is the {name}.", "Which river flows through {town}?", "Ships sail on the {name} to {town}."),
    ("{name} founded {town}.", "Who was the founder of {town}?", "The town of {town} was built by {name}."),
    ("People in {town} like to eat {name}.", "What do they eat in {town}?", "A plate of {name} is loved in {town}."),
    (
        "The mayor of {town} is called {name}.",
        "What is the name of the mayor of {town}?",
        "The people of {town} chose {name} to lead them.",
    ),
    (
        "A hill near {town} has the name {name}.",
        "What is the hill near {town} called?",
        "From the top of {name} one sees {town}.",
    ),
)
"""Of each kind a sentence of the corpus, a question, and a sentence elsewhere."""


@dataclass(frozen=True)
class Sizes:
    """Of the model, its rows and its training."""

    width: int
    layers: int
    vocabulary: int
    passage: int
    question: int
    steps: tuple[int, int, int]
    """Of the three stages."""
    rate: float = 1e-3


MADE_UP = Sizes(128, 2, 1500, 96, 32, (200, 200, 300))
SQUAD = Sizes(256, 2, 8000, 192, 48, (400, 100, 150))


def made_up_towns(folder: Path, seed: int) -> tuple[Path, ...]:
    """The corpus, other sentences with its facts, and questions to learn and to be asked."""
    draw, names = random.Random(seed), set[str]()

    def name() -> str:
        while True:
            word = "".join(draw.choice(CONSONANTS) + draw.choice(VOWELS) for _ in range(draw.choice((3, 4)))).title()
            if word not in names:
                names.add(word)
                return word

    passages, questions, elsewhere = [], [], {}
    for _ in range(TOWNS):
        town = name()
        facts = [(*texts, name()) for texts in FACTS]
        draw.shuffle(facts)
        passages.append(" ".join(sentence.format(town=town, name=answer) for sentence, _, _, answer in facts))
        for _, question, other, answer in facts:
            questions.append({"question": question.format(town=town), "answers": [answer]})
            elsewhere[answer] = {"text": other.format(town=town, name=answer)}
    draw.shuffle(questions)
    asked = len(questions) // 5
    told = [elsewhere[one["answers"][0]] for one in questions[asked:]]
    return written(folder, [{"text": one} for one in passages], told, questions[asked:], questions[:asked])


def squad(folder: Path, path: str, seed: int) -> tuple[Path, ...]:
    """The same of a file of SQuAD's, whose articles are divided."""
    records = list(SquadFiles((path,)))
    contexts = [{"text": text} for text in SquadFiles((path,)).documents()]
    titles = sorted({record.fields["title"] or record.fields["context"] for record in records})
    random.Random(seed).shuffle(titles)
    asked = set(titles[: -(-len(titles) // 5)])
    sides: dict[bool, list[Any]] = {True: [], False: []}
    for record in records:
        fields = record.fields
        side = (fields["title"] or fields["context"]) in asked
        sides[side].append({"question": fields["question"], "answers": fields["answers"]})
    return written(folder, contexts, contexts, sides[False], sides[True])


def written(folder: Path, *parts: Sequence[Any]) -> tuple[Path, ...]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = tuple(folder / f"{name}.jsonl" for name in ("corpus", "elsewhere", "learned", "asked"))
    for path, part in zip(paths, parts, strict=True):
        path.write_text("".join(json.dumps(one) + "\n" for one in part), encoding="utf-8")
    return paths


def stages(files: Sequence[Path], sizes: Sizes, folder: Path, seed: int, *, masked: bool) -> dict[str, Experiment]:
    """The runs, each of which begins with what the one before has learned."""
    corpus, elsewhere, learned, asked = map(str, files)
    bert = BertConfig(
        vocab_size=sizes.vocabulary,
        embed_dim=sizes.width,
        num_heads=4,
        mlp_dim=4 * sizes.width,
        num_layers=sizes.layers,
        max_length=256,
        dropout_rate=0.0,
        attention_dropout_rate=0.0,
    )
    texts = TextFiles((corpus,))
    data = Data(source=texts, corpus=texts, tokenizer=WordPiece(vocab_size=sizes.vocabulary), held_out=0.05)

    def experiment(model: RealmConfig, objective: Objective, data: Data, steps: int, **options: Any) -> Experiment:
        schedule = LinearDecay(peak=sizes.rate, warmup_steps=steps // 10, total_steps=steps + 1)
        return Experiment(
            model=model,
            objective=objective,
            data=data,
            optimizer=AdamW(schedule, clip_norm=1.0, b2=0.98),
            steps=steps,
            seed=seed,
            evaluation=Evaluation(every=0, rows=64),
            checkpoints=Checkpointing(every=max(steps // 4, 1), keep_best=0, keep_last=1),
            logging=Logging(every=20),
            **options,
        )

    retriever = RealmConfig(bert, projection_dim=64)
    shared = replace(retriever, shared=True)
    lengths = {"passage_length": sizes.passage, "input_length": sizes.question}
    questions, held_out = (OpenQuestions(JsonlFiles((path,))) for path in (learned, asked))
    runs = {
        "inverse cloze": experiment(
            shared, InverseCloze(**lengths, kept_share=0.5), data, sizes.steps[0], batch_size=64
        ),
        "masked names": experiment(
            replace(retriever, reader=replace(bert, heads=("masked_lm",))),
            RetrievalMaskedLanguageModel(**lengths, num_retrieved=4, refresh_every=25),
            replace(data, source=TextFiles((elsewhere,))),
            sizes.steps[1],
            batch_size=16,
            start=FromModel(str(folder / "inverse cloze")),
        ),
        "questions": experiment(
            replace(retriever, reader=bert, answer_dim=64),
            OpenQuestionAnswering(**lengths, num_retrieved=FOUND, num_scored=500, answer_length=12),
            replace(data, source=questions, held_out_source=held_out),
            sizes.steps[2],
            batch_size=16,
            start=FromModel(str(folder / ("masked names" if masked else "inverse cloze"))),
        ),
    }
    return {name: run for name, run in runs.items() if masked or name != "masked names"}


def holds(passage: str, answers: Sequence[str]) -> bool:
    """Whether a passage holds one of the answers, as the tokenizer spells both."""

    def letters(text: str) -> str:
        return "".join(filter(str.isalnum, text.lower()))

    return any(letters(answer) in letters(passage) for answer in answers)


def recall(find: Callable[[str], Sequence[str]], questions: Sequence[Any]) -> float:
    """The share of questions with an answer among the passages that are found."""
    return statistics.mean(
        any(holds(passage, one["answers"]) for passage in find(one["question"])) for one in questions
    )


def bm25(passages: Sequence[str]) -> Callable[[str], Sequence[str]]:
    from rank_bm25 import BM25Okapi

    def words(text: str) -> list[str]:
        return "".join(letter if letter.isalnum() else " " for letter in text.lower()).split()

    index = BM25Okapi([words(passage) for passage in passages])
    return lambda question: index.get_top_n(words(question), passages, FOUND)


def measure(folder: Path, path: str, seed: int, *, masked: bool) -> dict[str, float]:
    """The recall after each stage, minutes, and exact answers."""
    sizes = SQUAD if path else MADE_UP
    files = squad(folder, path, seed) if path else made_up_towns(folder, seed)
    questions = [json.loads(line) for line in files[3].read_text(encoding="utf-8").splitlines()]
    began, figures = time.monotonic(), {}
    for name, experiment in stages(files, sizes, folder, seed, masked=masked).items():
        if name == "inverse cloze":
            train(replace(experiment, steps=1), folder / "random")
            began, path_of = time.monotonic(), folder / "random"
            model = t5x_lite.load(path_of)
            figures["random"] = recall(lambda one, model=model: [p.text for p in model.retrieve(one, FOUND)], questions)
        train(experiment, folder / name)
        model = t5x_lite.load(folder / name)
        figures[name] = recall(lambda one, model=model: [p.text for p in model.retrieve(one, FOUND)], questions)
        figures[f"{name}, minutes"] = (time.monotonic() - began) / 60
        Console().print(figures)
    answers = [model.answer(one["question"]).text for one in questions]
    figures["exact answers"] = statistics.mean(
        any(holds(text, [right]) and holds(right, [text]) for right in one["answers"])
        for text, one in zip(answers, questions, strict=True)
    )
    passages = [passage.text for passage in model.retrieve(questions[0]["question"], model.num_passages)]
    figures["BM25"] = recall(bm25(passages), questions)
    return figures


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=Path("runs/open_book"))
    parser.add_argument("--squad", default="", help="a file of SQuAD's")
    parser.add_argument("--masked", action="store_true", help="with REALM's pretraining")
    parser.add_argument("--seeds", type=int, default=1)
    arguments = parser.parse_args()
    keep_memory()
    kind = (Path(arguments.squad).name.partition(".")[0] or "towns") + ("-masked" if arguments.masked else "")
    results = [
        measure(arguments.out / f"{kind}-{seed}", arguments.squad, seed, masked=arguments.masked)
        for seed in range(arguments.seeds)
    ]
    table = Table("what", *(f"seed {seed}" for seed in range(arguments.seeds)))
    for name in results[0]:
        format_of = ".1f" if "minutes" in name else ".1%"
        table.add_row(name, *(format(one[name], format_of) for one in results))
    Console(width=120).print(table)


if __name__ == "__main__":
    main()
