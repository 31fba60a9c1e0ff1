"""The notebooks, run from the first cell to the last, as their readers run them.

All that differs is how much is done: a cell that has `steps = 2000` has fewer here. One kernel runs them all, which
forgets between them what they have named. The outputs that are kept in a
notebook are those of all of it; here each cell has to show outputs of the same types.
"""

import base64
import importlib.util
import json
import math
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import nbformat
import pytest
from jupyter_client import KernelManager
from nbclient import NotebookClient

ROOT = Path(__file__).parents[2]
NOTEBOOKS = {path.stem.partition("_")[0]: path for path in sorted((ROOT / "notebooks").glob("*.ipynb"))}

EVALUATION = ',\\n",\n    "    evaluation=Evaluation(every=0, rows='
"""Between the size of a batch and the rows of the next line."""
SHORTER = {
    'steps = 1000\\n",\n    "asking =': 'steps = 2\\n",\n    "asking =',
    'steps = 1000\\n",\n    "sizes = {\\"embed_dim': 'steps = 8\\n",\n    "sizes = {\\"embed_dim',
    "steps = 2000\\n": "steps = 8\\n",
    "steps = 1000\\n": "steps = 20\\n",
    "steps = 300\\n": "steps = 2\\n",
    "steps = 200\\n": "steps = 8\\n",
    "batch_size=8,\\n": "batch_size=2,\\n",
    "kept_share=0.5),\\n": "kept_share=0.5), batch_size=8,\\n",
    '/ \\"cloze\\")),\\n': '/ \\"cloze\\")), batch_size=2, evaluation=replace(questions_base.evaluation, rows=8),\\n',
    f"32{EVALUATION}200": f"16{EVALUATION}16",
    f"64{EVALUATION}200": f"8{EVALUATION}16",
    "evaluation=Evaluation(every=0, rows=120)": "evaluation=Evaluation(every=0, rows=16)",
    "evaluation=Evaluation(every=0, rows=360)": "evaluation=Evaluation(every=0, rows=32)",
    "for seed in range(3):\\n": "for seed in range(1):\\n",
    "lengths = (1024, 2048, 4096, 8192)\\n": "lengths = (1024, 4096)\\n",
}
"""Lines of the notebooks as readers and as tests run them: what is learned, the outputs that are kept show."""


def types_of(outputs: list[Any]) -> set[str]:
    """Of what a cell shows: `stdout` of printed text, and the MIME types of the rest."""
    shown = [one for one in outputs if one.get("name") != "stderr"]
    return {kind for one in shown for kind in ([one.name] if one.output_type == "stream" else one.data)}


class Executed:
    """A notebook that ran: the outputs of its cells, and its kernel."""

    def __init__(self, client: NotebookClient, kept: dict[str, list[Any]]):
        self._client = client
        self.kept = kept
        self.outputs = {cell["id"]: cell.outputs for cell in client.nb.cells if cell.cell_type == "code"}

    def drifted(self) -> set[str]:
        """The cells that show other types of outputs than those that are kept."""
        return {cell for cell, outputs in self.outputs.items() if types_of(outputs) != types_of(self.kept[cell])}

    def printed(self, cell: str) -> str:
        """The text that a cell shows, errors left out."""
        shown = self.outputs[cell]
        return "".join(
            one.get("text", one.get("data", {}).get("text/plain", "")) for one in shown if one.get("name") != "stderr"
        )

    def pictures(self) -> set[str]:
        """The cells that show one."""
        shown = {cell: [one.get("data", {}) for one in outputs] for cell, outputs in self.outputs.items()}
        return {cell for cell, data in shown.items() if any("image/png" in one for one in data)}

    def value(self, expression: str) -> Any:
        """What the kernel makes of an expression, so far as JSON can carry it."""
        cell = nbformat.v4.new_code_cell(f"import json; print(json.dumps({expression}, default=float))")
        self._client.nb.cells.append(cell)
        self._client.execute_cell(cell, len(self._client.nb.cells) - 1)
        # A kernel sends what is printed in one piece or in several.
        return json.loads("".join(one.text for one in cell.outputs if one.get("name") == "stdout"))


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, quick_compiler: str) -> Iterator[dict[str, str]]:
    """A reader's, but for a temporary folder, in which one notebook reads the files of another one."""
    folder = tmp_path_factory.mktemp("notebooks")
    spec = folder / "jupyter" / "kernels" / "tested" / "kernel.json"
    spec.parent.mkdir(parents=True)
    command = [sys.executable, "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    spec.write_text(json.dumps({"argv": command, "display_name": "tested", "language": "python"}))
    (folder / "tmp").mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JUPYTER_PATH", str(folder / "jupyter"))
        yield os.environ | {
            "TMPDIR": str(folder / "tmp"),
            "IPYTHONDIR": str(folder / "ipython"),
            "PYTHONPATH": os.pathsep.join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")])),
            "HF_HUB_OFFLINE": "1",
            "XLA_FLAGS": quick_compiler,  # one device, as a laptop has
            "JAX_COMPILATION_CACHE_DIR": str(ROOT / ".pytest_cache" / "jax"),
            "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS": "0.3",
        }


@pytest.fixture(scope="module")
def shortened(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the notebooks, beside those whose files they read, with less to do."""
    root = tmp_path_factory.mktemp("shortened")
    for name in ("configs", "docs"):
        (root / name).symlink_to(ROOT / name)
    (root / "notebooks").mkdir()
    for path in NOTEBOOKS.values():
        text = path.read_text(encoding="utf-8")
        for line, shorter in SHORTER.items():
            text = text.replace(line, shorter)
        (root / "notebooks" / path.name).write_text(text, encoding="utf-8")
    return root / "notebooks"


@pytest.mark.parametrize("number", NOTEBOOKS)
def test_what_a_notebook_imports_is_there(number):
    """Most notebooks are slow to run, and a name that is gone ends them all the same."""
    cells = nbformat.read(NOTEBOOKS[number], as_version=4).cells
    lines = [line for cell in cells if cell.cell_type == "code" for line in cell.source.splitlines()]
    imports = [line for line in lines if line.startswith(("import t5x_lite", "from t5x_lite"))]
    assert imports
    exec("\n".join(imports), {})


@pytest.fixture(scope="module")
def kernel(environment: dict[str, str], shortened: Path) -> Iterator[KernelManager]:
    """In the notebooks' folder; starting one and importing what they need takes as long as some of them."""
    manager = KernelManager(kernel_name="tested")
    manager.start_kernel(env=environment, cwd=str(shortened))
    yield manager
    manager.shutdown_kernel(now=True)


@pytest.fixture
def execute(kernel: KernelManager, shortened: Path) -> Iterator[Callable[[str], Executed]]:
    """`execute(number)`: the notebook of that number, all of whose cells have run; a cell that fails raises."""
    with ExitStack() as clients:

        def run(number: str) -> Executed:
            notebook = nbformat.read(shortened / NOTEBOOKS[number].name, as_version=4)
            client = NotebookClient(notebook, timeout=600, km=kernel)
            kept = {cell["id"]: cell.get("outputs", []) for cell in notebook.cells}
            clients.enter_context(client.setup_kernel())
            client.kc.execute_interactive("%reset -f", timeout=60)
            for index, cell in enumerate(notebook.cells):
                client.execute_cell(cell, index)
            return Executed(client, kept)

        yield run


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=lambda path: path.stem)
def test_it_reads_well_on_github(path):
    text = path.read_text(encoding="utf-8")
    notebook = nbformat.reads(text, as_version=4)
    nbformat.validate(notebook)
    assert text == nbformat.writes(notebook) + "\n", "as Jupyter writes it, so that saving one changes what was changed"
    assert len(text) < 300_000
    assert not re.search(r"[\"' (](/[a-z]+/|[A-Z]:\\\\|~/)", "\n".join(cell.source for cell in notebook.cells)), "paths"
    assert notebook.cells[0].source.startswith(f"# {path.stem.partition('_')[0]} · ")
    message = sum(len(cell.source) for cell in notebook.cells if cell.cell_type == "markdown")
    assert message > 1000, "it is to be read without running it"
    for target in re.findall(r"\]\((?!https?:)([^)#]+)\)", text):
        assert (path.parent / target).exists(), target


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=lambda path: path.stem)
def test_outputs_are_kept(path):
    """Those of one run from the first cell to the last, small, and of no machine in particular."""
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == [*range(1, len(cells) + 1)]
    outputs = [output for cell in cells for output in cell.outputs]
    assert {output.output_type for output in outputs} <= {"stream", "display_data", "execute_result"}
    assert not [output for output in outputs if output.get("name") == "stderr"]
    pictures = [png for output in outputs if (png := output.get("data", {}).get("image/png"))]
    assert all(len(base64.b64decode(png)) < 60_000 for png in pictures)
    assert not re.search(r"/(?:home|root|Users|work)/", json.dumps(outputs))


@pytest.mark.parametrize("path", NOTEBOOKS.values(), ids=lambda path: path.stem)
def test_the_prose_has_the_figures_of_the_outputs(path):
    """Each number with decimals is one that an output shows, or the percentage of one, rounded."""
    cells = nbformat.read(path, as_version=4).cells
    shown = [json.dumps(cell.outputs) for cell in cells if cell.cell_type == "code"]
    numbers = {float(number) for text in shown for number in re.findall(r"(?<![\w.])\d+\.\d+", text)}
    for cell in cells:
        if cell.cell_type == "markdown":
            for figure in re.findall(r"(?<![\w.])\d+\.\d+(?![\w.]\w)", cell.source):
                rounded = f".{len(figure.partition('.')[2])}f"
                assert figure in {format(factor * number, rounded) for number in numbers for factor in (1, 100)}, figure


LEARNED = {
    ("1", "run_training"): (r"^held-out: loss .* accuracy ([\d.]+)%", 20),
    ("3", "run_training"): (r"^BERT .*?'accuracy': ([\d.]+)", 0.3),
    ("3", "probe"): (r"layer 1 of BERT +\+([\d.]+)%", 55),
    ("4", "compare"): (r"fine_tuned +([\d.]+)% right", 70),
    ("7", "classify"): (r"^([\d.]+)% right", 90),
    ("8", "detr-experiment"): (r"'ap50': ([\d.]+)", 0.5),
    ("8", "clip-experiment"): (r"^(\d+) of 130 pictures", 100),
    ("10", "recall"): (r"^(\d+)% have their answer in one of five", 50),
}
"""By notebook and cell: where the figure stands in what is printed, and how much it is at least; all are far above a
guess."""


@pytest.mark.parametrize("number, cell", LEARNED)
def test_the_models_of_the_outputs_that_are_kept_have_learned(number, cell):
    """In as many steps as the notebooks have; those of the tests below have a few."""
    pattern, least = LEARNED[number, cell]
    (found,) = [one for one in nbformat.read(NOTEBOOKS[number], as_version=4).cells if one["id"] == cell]
    printed = "".join(one.get("text", "") for one in found.outputs)
    assert float(re.search(pattern, printed, re.MULTILINE)[1]) > least


def test_what_is_shortened_is_there():
    notebooks = "".join(path.read_text(encoding="utf-8") for path in NOTEBOOKS.values())
    assert all(line in notebooks for line in SHORTER)


def test_there_are_eleven():
    assert sorted(map(int, NOTEBOOKS)) == list(range(1, 12))


@pytest.mark.slow
def test_a_tiny_t5_fills_in_blanks(execute):
    notebook = execute("1")
    assert not notebook.drifted()
    printed = notebook.printed("run_training")
    assert "held-out: loss" in printed
    assert "\x1b" not in printed, "colours and bars are for terminals"
    figures = notebook.value("figures")
    assert figures["loss"] < math.log(1024), "what a guess among all tokens costs"
    assert len(notebook.printed("fill_in").splitlines()) == 2 * notebook.value("len(texts)")
    scores = [float(line.split()[0]) for line in notebook.printed("several").splitlines()]
    assert len(scores) == 4
    assert scores == sorted(scores, reverse=True)
    assert notebook.pictures() == {"loss_curve"}


@pytest.mark.slow
def test_a_look_inside(execute):
    notebook = execute("2")
    assert not notebook.drifted()
    assert "cross_attention" in notebook.printed("parts")
    assert notebook.pictures() == {"task", "encoder_attention", "cross_attention", "positions"}
    assert "srcdoc" in notebook.outputs["attention"][0]["data"]["text/html"]
    assert notebook.value("[(one.kind, one.num_layers, one.num_heads) for one in maps.maps]") == [
        ["encoder", 3, 4],
        ["decoder", 3, 4],
        ["cross", 3, 4],
    ]
    assert notebook.value("abs(maps['encoder'].weights.sum(axis=-1) - 1).max()") < 1e-5
    assert len(notebook.printed("neighbours").splitlines()) == 5
    prince, *others = notebook.printed("names").splitlines()
    assert "Andrew" in prince and len(others) == 2


@pytest.mark.slow
def test_electra_and_bert_at_equal_compute(execute):
    notebook = execute("3")
    assert not notebook.drifted()
    compute = notebook.value("[flops(bert) * bert.steps, flops(electra) * electra.steps]")
    assert compute[1] == pytest.approx(compute[0], rel=0.51 / 14), "half a step of fourteen"
    assert notebook.value("electra.steps < bert.steps")
    figures = notebook.value("json.loads((runs['BERT'] / 'held_out.json').read_text())")
    assert figures["loss"] < math.log(1024), "what a guess among all tokens costs"
    accuracy = notebook.value("{f'{name} {layer}': values.mean() for (name, layer), values in right.items()}")
    assert set(accuracy) == {f"{name} {layer}" for name in ("untrained", "BERT", "ELECTRA") for layer in (1, 2)}
    assert accuracy["BERT 1"] > 0.5, "where half of the guesses are right"
    assert notebook.printed("difference").count("ELECTRA less BERT") == 2
    assert notebook.value("len(test)") > 150
    assert not notebook.value("[text for text, _ in test if text in dict(train)]")
    assert notebook.pictures() == {"draw_curves"}


@pytest.mark.slow
def test_fine_tuning_on_a_table(execute):
    notebook = execute("4")
    assert "random are classification/scores/" in notebook.printed("fine_tune")
    assert not notebook.drifted()
    accuracy, count = notebook.value("[accuracy, len(texts)]")
    assert count == 150
    assert accuracy["fine_tuned"] > 0.5, "where a third of the guesses are right"
    held_out = notebook.value("json.loads((folder / 'fine_tuned' / 'held_out.json').read_text())")
    assert held_out["accuracy"] == pytest.approx(accuracy["fine_tuned"], abs=1.01 / count), "classify does as training"
    first, second = notebook.printed("wrong_table").split("\n\n")[:2]
    assert "does not know: 'dickens' 1 times, the first in " in first
    assert "label='writer' is missing in " in second


@pytest.mark.slow
def test_a_pod_is_planned_or_the_extra_is_named(execute):
    notebook = execute("5")
    assert "11,307,321,344 parameters, 42.1 GiB in float32" in notebook.printed("count")
    assert len(notebook.printed("compare_chips").splitlines()) == 6
    if importlib.util.find_spec("libtpu") is None:
        assert "install the extra: pip install 't5x_lite[tpu]'" in notebook.printed("make_plan")
        assert notebook.pictures() == set()
    else:
        assert "bert_base on v5e:2x2: 4 chips" in notebook.printed("make_plan")
        assert notebook.value("[plan.fits, 0 < plan.mfu < 1, larger.fits]") == [True, True, False]
        assert notebook.pictures() == {"picture"}
        assert not notebook.drifted()


@pytest.mark.slow
def test_to_hugging_face_and_back(execute):
    notebook = execute("6")
    assert notebook.drifted() <= {"setup"}, "which runs notebook 1 where that has not run"
    assert "decoder.block.0.layer.0.SelfAttention.k.weight" in notebook.printed("export")
    assert "0 numbers differ; the same config: True" in notebook.printed("back")
    ours, theirs = notebook.value("[model.generate(text, max_length=12) for model in (ours, again)]")
    assert ours == theirs
    if importlib.util.find_spec("torch") is None or importlib.util.find_spec("transformers") is None:
        assert "pip install 't5x_lite[oracle]' to compare" in notebook.printed("transformers")
    else:
        assert notebook.value("largest") < 1e-4, "the logits in Hugging Face's format are those of Transformers"


@pytest.mark.slow
def test_pictures_with_many_labels_and_few(execute):
    notebook = execute("7")
    assert not notebook.drifted()
    assert notebook.pictures() == {"make_experiment", "classify", "attention", "reconstruct", "reconstruct_half"}
    assert "held-out: loss" in notebook.printed("run_training")
    assert notebook.value("np.mean([likely[0].label == str(n) for likely, n in zip(answers, labels)])") > 0.1
    held_out = notebook.value("figures")
    assert held_out["loss"] < 2 * held_out["constant_loss"]
    assert notebook.value("mae.reconstruct(images[0]).is_hidden.mean()") == 0.75
    assert notebook.value("{name: np.shape(draws) for name, draws in right.items()}") == {
        name: [1, 360] for name in ("from scratch", "from the autoencoder", "regression on pixels")
    }
    assert notebook.value("np.mean(right['regression on pixels'])") > 0.7
    assert notebook.printed("difference").count("95 % interval") == 2


@pytest.mark.slow
def test_pictures_with_words_and_with_boxes(execute):
    notebook = execute("8")
    assert not notebook.drifted()
    assert notebook.pictures() == {"detect", "attention", "search"}
    assert "pictures of one object named among 12" in notebook.printed("clip-experiment")
    assert notebook.value("len(right)") > 50
    held_out = notebook.value("figures")
    assert held_out["loss"] < held_out["constant_loss"]
    assert notebook.value("[len(one) for one in detr.detect(paths[:3], 0.0)]") == [8, 8, 8]


@pytest.mark.slow
def test_laws_of_runs_of_several_sizes(execute):
    notebook = execute("9")
    assert not notebook.drifted()
    assert notebook.pictures() == {"study"}
    assert notebook.value("len(ends)") == 24
    assert "73 G parameters, 1.3 T tokens" in notebook.printed("published")
    assert notebook.value("study.optima(1e14)['3, L(N, D)'][0].parameters") > 1e5


@pytest.mark.slow
def test_an_open_book(execute):
    notebook = execute("10")
    assert not notebook.drifted()
    assert notebook.value("len(model.answer(asked[0][0]).passages)") == 5
    assert notebook.value("len(model.retrieve(asked[0][0], 3))") == 3


@pytest.mark.slow
def test_long_texts(execute):
    notebook = execute("11")
    assert not notebook.drifted()
    assert notebook.pictures() == {"pattern"}
    lines = notebook.printed("cost").splitlines()
    mib = {line[:20].strip(): [float(one.replace(",", "")) for one in line[20:].split()] for line in lines[1:]}
    assert mib["all tokens"][1] > 10 * mib["all tokens"][0]
    assert all(mib[name][1] < 5 * mib[name][0] for name in ("BigBird", "Linformer, 128 rows"))
    assert notebook.value("reader.answer('Who is the thief?', one).text in one")
