"""The pages of docs/: their code runs, their commands parse, what they name is there, and the site builds."""

import ast
import importlib
import importlib.util
import inspect
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any, NoReturn

import pytest
from PIL import Image

import t5x_lite
from t5x_lite.cli.main import find_commands
from t5x_lite.convert import export_folder
from t5x_lite.data import ClipBPE, JsonlFiles, LabeledTexts, OpenQuestions, TableFiles, make_tokenizer
from t5x_lite.models import (
    PRESETS,
    BertConfig,
    ClipConfig,
    ClipImageConfig,
    ClipTextConfig,
    DetrConfig,
    MAEConfig,
    RealmConfig,
    ResNetConfig,
    ViTConfig,
    num_params,
)
from t5x_lite.objectives import Classification, OpenQuestionAnswering
from t5x_lite.runs.checkpoints import write_checkpoint
from t5x_lite.runs.workdir import tokenizer_files
from t5x_lite.tokenizers.config import WordPiece
from t5x_lite.tokenizers.training import train_sentencepiece
from t5x_lite.training import Checkpointing

from ..models import test_presets, test_t5
from ..programs import like_new
from ..t5x_checkpoints import tree, write_file
from ..tiny_runs import ENCODERS, STACKS

ROOT = Path(__file__).parents[2]
PAGES = {path.relative_to(ROOT / "docs").as_posix(): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))}

ELSEWHERE = {"extending.md"}
"""Pages with a test of their own."""

PACKAGES = (
    "",
    ".models",
    ".objectives",
    ".data",
    ".decoding",
    ".training",
    ".metrics",
    ".pretrained",
    ".retrieval",
    ".scaling",
)

QUESTIONS = {
    "out of memory": {"faq.html"},
    "resume after kill": {"faq.html", "guides/reproducibility.html"},
    "own tokenizer": {"faq.html", "guides/text.html"},
    "load hugging face model": {"faq.html", "guides/checkpoints.html"},
    "export hugging face": {"faq.html", "guides/checkpoints.html"},
    "train several gpus": {"faq.html", "guides/hosts.html"},
    "learning rate command line": {"faq.html"},
    "translate own pairs": {"faq.html", "guides/translation.html"},
    "fill masks": {"faq.html"},
    "try trained model": {"faq.html", "tour.html"},
    "where checkpoints": {"faq.html", "guides/reproducibility.html"},
}
"""The words that a newcomer types into the search, and the pages that answer."""


def blocks(page: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", PAGES[page], re.MULTILINE | re.DOTALL)


def prose(page: str) -> str:
    """A page without its blocks of code."""
    return re.sub(r"^```.*?^```$", "", PAGES[page], flags=re.MULTILINE | re.DOTALL)


def inline(page: str) -> list[str]:
    """What stands between backticks in the prose."""
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", prose(page))]


def commands(page: str) -> list[list[str]]:
    """The arguments of every call of t5x_lite on a page."""
    found = []
    indented = re.findall(r"^    (?:python|t5x-lite) .+$", prose(page), re.MULTILINE)
    for text in [*blocks(page, "bash"), *indented, *inline(page)]:
        for line in re.split(r"\n|&&", text.replace("\\\n", " ")):
            match = re.match(r"\s*(?:python -m t5x_lite|t5x-lite|launch/simulated\.sh \d+) (.+)", line)
            if match:
                found.append(shlex.split(match[1], comments=True))
    return found


CALLS = sorted({tuple(call) for page in PAGES for call in commands(page)})


@pytest.mark.parametrize("page", PAGES)
def test_python_compiles(page):
    for code in blocks(page, "python"):
        compile(code, page, "exec")
    fences = re.findall(r"^```(\w*)$", PAGES[page], re.MULTILINE)
    assert {*fences} <= {"", "python", "bash", "text"} and fences[::2].count("") == 0


class Parsed(BaseException):
    """A command line is one of its command's."""


@pytest.mark.parametrize("call", CALLS, ids=" ".join)
def test_commands_parse(call, monkeypatch):
    monkeypatch.chdir(ROOT)
    command, *arguments = call
    if "--import" in arguments:
        del arguments[(at := arguments.index("--import")) : at + 2]
    module = importlib.import_module(f"t5x_lite.cli.commands.{find_commands()[command][0]}")
    original = module.parse

    def parse(*given: Any, **options: Any) -> NoReturn:
        original(*given, **options)
        raise Parsed

    monkeypatch.setattr(module, "parse", parse)
    with pytest.raises(Parsed):
        getattr(module, command)(arguments)


def annotated_names() -> set[str]:
    """The names of all fields in the package, an option's last part among them."""
    trees = (ast.parse(path.read_text()) for path in (ROOT / "t5x_lite").rglob("*.py"))
    nodes = (node for one in trees for node in ast.walk(one))
    return {node.target.id for node in nodes if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)}


def test_what_is_named_is_there():
    """Files, options, modules and names of the package between backticks."""
    options, missing = annotated_names(), []
    for page in PAGES:
        for text in inline(page):
            files = re.findall(r"(?<![\w/.])(?:configs|t5x_lite|launch|benchmarks|notebooks|docs)/[\w./*-]*", text)
            missing += [(page, file) for file in files if not [*ROOT.glob(file)]]
            if re.fullmatch(r"t5x_lite(\.\w+)+", text.partition("(")[0]):
                missing += [(page, text)] if resolve(text.partition("(")[0]) is None else []
            if text.startswith("python benchmarks/"):
                source = (ROOT / text.split()[1]).read_text()
                missing += [(page, option) for option in re.findall(r"--[\w-]+", text) if f'"{option}"' not in source]
            elif text.startswith("--"):
                last = text.split()[0].rpartition(".")[2].lstrip("-").replace("-", "_")
                missing += [(page, text)] if last not in options else []
    assert not missing


def resolve(name: str) -> Any:
    """The module or the attribute of a dotted name; None where there is none."""
    module, _, last = name.rpartition(".")
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError:
        home = importlib.import_module(module) if importlib.util.find_spec(module) else resolve(module)
        return getattr(home, last, None)


def anchors(text: str) -> set[str]:
    titles = re.findall(r"^#+ (.+)$", re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL), re.MULTILINE)
    return {re.sub(r"[\s-]+", "-", re.sub(r"[^\w\s-]", "", title).strip().lower()) for title in titles}


@pytest.mark.parametrize("page", PAGES)
def test_links_lead_somewhere(page):
    folder = (ROOT / "docs" / page).parent
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = (folder / path).resolve() if path else ROOT / "docs" / page
        assert linked.is_file(), target
        assert not anchor or anchor in anchors(linked.read_text()), target
    for included in re.findall(r'--8<-- "(.+)"', PAGES[page]):
        assert (ROOT / included).is_file()


@pytest.mark.slow
def test_sizes_are_those_of_the_presets():
    """Most are published and compared with the presets in a test of their own."""
    rows = [
        row for text in PAGES.values() for row in re.findall(r"^\| `([\w.-]+)` \| ([\d,]{6,}) \|", text, re.MULTILINE)
    ]
    assert len(rows) > 60
    published = test_presets.PUBLISHED | test_t5.PUBLISHED
    sizes = {name: published.get(name) or num_params(PRESETS[name]) for name, _ in rows}
    assert [(name, f"{sizes[name]:,}") for name, _ in rows] == rows


@pytest.mark.parametrize("package", PACKAGES)
def test_every_export_has_a_docstring(package):
    """Classes and functions; a value has one in the source, below it."""
    module = importlib.import_module(f"t5x_lite{package}")
    for name in module.__all__:
        value = getattr(module, name)
        if inspect.isclass(value) or inspect.isfunction(value):
            own = vars(value).get("__doc__") if inspect.isclass(value) else value.__doc__
            assert own and not own.startswith(f"{name}("), name


ONE_STACK = {name: size for name, size in STACKS.items() if not name.endswith("coder_layers")} | {"num_layers": 1}
READER = BertConfig(**ONE_STACK | {"max_length": 64}, heads=())
RUNS = {
    "bert_tiny": ENCODERS["BERT"],
    "electra_tiny": ENCODERS["ELECTRA"],
    "banking77": (Classification(24), BertConfig(**ONE_STACK, heads=("classification",))),
    "realm_tiny_questions": (
        OpenQuestionAnswering(passage_length=24, num_retrieved=5, input_length=24, num_scored=6, answer_length=4),
        RealmConfig(READER, projection_dim=8, reader=READER, answer_dim=8),
    ),
}
"""The runs that pages open but do not train."""
SOURCES = {
    "banking77": LabeledTexts(TableFiles(("train.csv",)), labels=("card_arrival", "lost_or_stolen_card")),
    "realm_tiny_questions": OpenQuestions(JsonlFiles(("questions.jsonl",))),
}
"""What those are trained on that need more than texts."""

PATCHES = {"image_size": (16, 16), "patch_size": 4, "embed_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}
DECODER = {"decoder_embed_dim": 8, "decoder_num_heads": 2, "decoder_mlp_dim": 8, "decoder_num_layers": 1}
DETECTOR = DetrConfig(
    ResNetConfig((1, 1, 1, 1), (4, 4, 4, 8), bottleneck=False, stem_width=4, heads=(), frozen_norm=True),
    num_classes=3,
    num_queries=4,
    embed_dim=8,
    num_heads=2,
    mlp_dim=8,
    num_encoder_layers=1,
    num_decoder_layers=1,
)
PICTURES = {
    "google/vit-base-patch16-224": ViTConfig(**PATCHES, num_classes=3),
    "facebook/vit-mae-base": MAEConfig(**PATCHES, **DECODER),
}
"""The folders of models of pictures that pages open."""


def write_clip(folder: Path) -> None:
    """A tiny CLIP, whose tokenizer has no merges."""
    merges = folder.parent / "merges.txt"
    merges.parent.mkdir(parents=True, exist_ok=True)
    merges.write_text("#version\n")
    sizes = {"embed_dim": 8, "num_heads": 2, "mlp_dim": 8, "num_layers": 1}
    model = ClipConfig(ClipImageConfig((16, 16), 4, **sizes), ClipTextConfig(514, **sizes), 8)
    tokenizer = make_tokenizer(ClipBPE(str(merges), 514), iter)
    export_folder(folder, model, like_new(model), tokenizer)


@pytest.fixture(scope="module")
def laboratory(tiny, text_file, tmp_path_factory, shared_programs) -> Iterator[None]:
    """A current folder with the runs and the checkpoints that the pages open, each of them tiny."""
    folder = tmp_path_factory.mktemp("laboratory")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        patch.setenv("T5X_LITE_CACHE", str(folder / "cache"))
        run = t5x_lite.train(replace(tiny, steps=2, checkpoints=Checkpointing()), "runs/t5_tiny")
        for name in ("google-t5/t5-small", "folder"):
            run.model.export(name)
        lines = Path(text_file).read_text().splitlines()
        tokenizer = WordPiece(vocab_size=100)
        for name, (objective, model) in RUNS.items():
            corpus = tiny.data.source if isinstance(model, RealmConfig) else None
            data = replace(tiny.data, tokenizer=tokenizer, source=SOURCES.get(name, tiny.data.source), corpus=corpus)
            experiment = replace(tiny, model=model, objective=objective, data=data)
            make_tokenizer(tokenizer, lambda: iter(lines)).save(folder / "runs" / name / "tokenizer")
            files = tokenizer_files(folder / "runs" / name / "tokenizer")
            params = like_new(model)
            write_checkpoint(folder / "runs" / name / "checkpoints", 0, experiment, files, params)
            Path("runs", name, "experiment.json").write_text(experiment.to_json())
        pieces = train_sentencepiece(iter(lines), vocab_size=40, character_coverage=1.0, algorithm="unigram")
        Path("spiece.model").write_bytes(pieces)
        write_file(folder / "checkpoint_1000000", tree(True, vocab_size=160))
        for name, model in PICTURES.items():
            params = like_new(model)
            export_folder(folder / name, model, params, None)
        write_clip(folder / "openai/clip-vit-base-patch32")
        params = like_new(DETECTOR)
        # It is sure of what it finds.
        params["class_head"]["bias"] = params["class_head"]["bias"].at[0].add(10.0)
        export_folder(folder / "facebook/detr-resnet-50", DETECTOR, params, None)
        for name in ("cat.jpg", "dog.png", "street.jpg"):
            Image.linear_gradient("L").save(name)
        yield


@pytest.mark.slow  # trains the runs that the pages open
@pytest.mark.parametrize("page", [page for page in PAGES if blocks(page, "python") and page not in ELSEWHERE])
def test_python_runs(page, laboratory):
    names: dict[str, Any] = {}
    for code in blocks(page, "python"):
        exec(compile(code, page, "exec"), names)


needs_mkdocs = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("mkdocs", "material", "mkdocstrings_handlers")),
    reason="MkDocs is not installed; pip install -e '.[docs]'",
)


@needs_mkdocs
@pytest.mark.slow
def test_docstrings_become_markdown():
    spec = importlib.util.spec_from_file_location("docs_docstrings", ROOT / "docs" / "docstrings.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    assert module.join_summary("One\n  line.\n\nMore\nlines.") == "One line.\n\nMore\nlines."
    assert module.escape_tags("<s> and `<pad>`\n\n    <unk>\n") == "&lt;s> and `<pad>`\n\n    <unk>\n"
    fenced = "  ```pycon\n  >>> 1 +\\\n  ... 1\n  2\n  ```"
    assert module.fence("A sum.\n\n  >>> 1 +\\\n  ... 1\n  2\n\nMore.") == f"A sum.\n\n{fenced}\n\nMore."


@pytest.fixture(scope="module")
def site(tmp_path_factory) -> Path:
    """The site as it is published; a warning is an error."""
    folder = tmp_path_factory.mktemp("site")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    built = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    )
    assert built.returncode == 0, built.stderr
    return folder


@needs_mkdocs
@pytest.mark.slow
def test_the_site_is_built_and_has_every_export(site):
    assert {path.relative_to(site).with_suffix(".md").as_posix() for path in site.rglob("*.html")} >= {*PAGES}
    pages = {package: (site / "api" / f"{package[1:] or 't5x_lite'}.html").read_text() for package in PACKAGES}
    for package, page in pages.items():
        names = importlib.import_module(f"t5x_lite{package}").__all__
        # A function may have the name of its module.
        ids = {name: (f'id="t5x_lite{package}.{name}"', f'id="t5x_lite{package}.{name}.{name}"') for name in names}
        assert [name for name in names if not any(one in page for one in ids[name])] == []
    everything = "".join(pages.values())
    assert not re.findall(r"</?(?:s|pad|unk|mask|extra_id\w*)>", everything)
    missing = [base for base in bases_of_exports() if f'id="{base.__module__}.{base.__name__}"' not in everything]
    assert missing == []


def bases_of_exports() -> set[type]:
    """The classes that lend documented fields or methods to an export, and are not exported themselves."""
    modules = [importlib.import_module(f"t5x_lite{package}") for package in PACKAGES]
    exports = {
        value for module in modules for name in module.__all__ if inspect.isclass(value := getattr(module, name))
    }
    bases = {base for export in exports for base in export.__mro__ if base.__module__.startswith("t5x_lite.")}
    without = {"t5x_lite.validation", "t5x_lite.data.stored_rows"}
    return {base for base in bases - exports if base.__module__ not in without and not base.__name__.startswith("_")}


@needs_mkdocs
@pytest.mark.slow
@pytest.mark.parametrize("question", QUESTIONS)
def test_the_search_finds_the_page(question, site):
    """The section with most of the words in its title, then in its text, is on a page that answers."""
    sections = json.loads((site / "search" / "search_index.json").read_text())["docs"]

    def matches(section: dict[str, str]) -> tuple[int, int]:
        title, text = section["title"].lower(), section["text"].lower()
        return sum(word in title for word in question.split()), sum(word in text for word in question.split())

    best = max(map(matches, sections))
    assert {section["location"].partition("#")[0] for section in sections if matches(section) == best} <= QUESTIONS[
        question
    ]
