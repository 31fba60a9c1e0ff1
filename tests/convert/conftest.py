"""What the comparisons with Transformers' models share."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest
from flax import linen as nn

from t5x_lite.convert import export_folder, import_folder
from t5x_lite.models import abstract_params


@dataclass(frozen=True)
class Pair:
    """A model of the oracle, its folder, and what we read from it."""

    case: Any
    theirs: Any
    folder: Path
    config: Any
    params: Any

    @property
    def size(self) -> int:
        """How many parameters we read."""
        return sum(leaf.size for leaf in jax.tree.leaves(self.params))

    def assert_same_loss(self, value: jax.Array, gradient: Any, their_loss: Any) -> None:
        """Their loss has our value, and their gradient the norm of ours."""
        self.theirs.zero_grad()
        their_loss.backward()
        squares = sum((p.grad**2).sum() for p in self.theirs.parameters() if p.grad is not None)
        assert float(value) == pytest.approx(their_loss.item(), abs=1e-4)
        norm = np.linalg.norm([np.linalg.norm(leaf) for leaf in jax.tree.leaves(gradient)])
        assert norm == pytest.approx(squares.sqrt().item(), rel=1e-4)

    def export(self, folder: Path, kind: Any = None) -> Any:
        """What Transformers opens in the folder that we write: as it is, with no parameter missing or left over."""
        export_folder(folder, self.config, self.params, None)
        model, report = (kind or type(self.theirs)).from_pretrained(
            folder, output_loading_info=True, attn_implementation="eager"
        )
        assert not report["missing_keys"]
        assert not report["unexpected_keys"]
        return model.eval()

    def assert_imports_exactly(self, folder: Path) -> None:
        """What we wrote there is what we read again."""
        again = import_folder(folder)
        assert again.config == self.config
        assert jax.tree.structure(again.params) == jax.tree.structure(self.params)
        jax.tree.map(np.testing.assert_array_equal, again.params, self.params)


@pytest.fixture(scope="session")
def make_pair(tmp_path_factory) -> Callable[[Any, Any], Pair]:
    """`make_pair(case, model)`: the model, and what we read after it was saved."""

    def make(case: Any, model: Any) -> Pair:
        folder = tmp_path_factory.mktemp("oracle")
        model.save_pretrained(folder)
        imported = import_folder(folder)
        return Pair(case, model, folder, imported.config, imported.params)

    return make


@pytest.fixture(scope="session")
def params_of() -> Callable[..., Any]:
    """`params_of(config)`: random parameters, whose shapes are traced once for the test and for the import."""

    def draw(config: Any, seed: int = 0) -> Any:
        random, shapes = np.random.default_rng(seed), nn.unbox(abstract_params(config))

        def leaf(path: tuple, leaf: Any) -> np.ndarray:
            mean = 1 if "scale" in jax.tree_util.keystr(path) else 0
            return mean + 0.3 * random.standard_normal(leaf.shape, np.float32)

        return jax.tree_util.tree_map_with_path(leaf, shapes)

    return draw
