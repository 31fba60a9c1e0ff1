"""ELMo's folders, as AllenNLP and bilm-tf have them (Peters et al. 2018): options.json and weights in HDF5.

The output over words that they were trained by is in neither. Gates of an LSTM come in another order there, and the
forget gate's bias lacks the 1 that their code adds.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
from flax import linen as nn
from flax import traverse_util

from t5x_lite.convert.huggingface import Imported
from t5x_lite.convert.table import PutFor
from t5x_lite.decoding import GenerationDefaults
from t5x_lite.errors import InputError
from t5x_lite.models import ElmoConfig, abstract_params, num_params


def find_elmo(folder: Path) -> tuple[Path, Path] | None:
    """The options and the weights in a folder, whose published names have the model's in front; None where there are
    none."""
    if not folder.is_dir():
        return None
    found = [sorted(folder.glob(pattern)) for pattern in ("*options.json", "*weights.hdf5")]
    return (found[0][0], found[1][0]) if [len(one) for one in found] == [1, 1] else None


def import_elmo(options: Path, weights: Path, put_for: PutFor) -> Imported:
    """The ELMo in two files.

    Raises `InputError` for options of another architecture, weights that do not fit them, and where the package h5py is
    missing.
    """
    config = _read_options(options)
    try:
        import h5py
    except ImportError:
        raise InputError(f"{weights} needs the package h5py; install it: pip install 't5x_lite[elmo]'") from None
    try:
        with h5py.File(weights, "r") as file:
            found: dict[str, Any] = {}
            # Links, which may lead to other files, are not followed.
            file.visititems(lambda name, one: found.update({name: one}) if isinstance(one, h5py.Dataset) else None)
            # A few bytes can hold an array of any size.
            numbers, most = sum(one.size or 0 for one in found.values()), 2 * num_params(config)
            if numbers > most or any(one.dtype.kind != "f" for one in found.values()):
                raise InputError(
                    f"{weights} holds {numbers:,} numbers or texts, the model {most // 2:,} numbers; fetch it again"
                )
            tensors = {name: one[...] for name, one in found.items()}
    except (OSError, RuntimeError) as error:
        raise InputError(f"{weights} is damaged, or no HDF5 ({error}); fetch it again") from None
    ours = _to_ours(config, tensors, weights)
    needed = traverse_util.flatten_dict(nn.unbox(abstract_params(config)), sep="/")
    for path, leaf in needed.items():
        if path not in ours or ours[path].shape != leaf.shape:
            has = ours[path].shape if path in ours else "nothing"
            raise InputError(f"{weights} does not fit {options}: {path} has {has} where the model has {leaf.shape}")
    put = put_for(config)
    params = {path: put(path, np.asarray(ours[path], np.float32)) for path in needed}
    return Imported(config, traverse_util.unflatten_dict(params, sep="/"), None, None, GenerationDefaults(), None)


def _read_options(path: Path) -> ElmoConfig:
    try:
        options = json.loads(path.read_text(encoding="utf-8"))
        lstm, characters = options["lstm"], options["char_cnn"]
        other = {
            "lstm.use_skip_connections": (lstm["use_skip_connections"], True),
            "char_cnn.activation": (characters["activation"], "relu"),
        }
        for name, (value, known) in other.items():
            if value != known:
                raise InputError(f"{name}={value!r} in {path} is another architecture; {known!r} is known")
        return ElmoConfig(
            character_dim=characters["embedding"]["dim"],
            filters=tuple((int(width), int(count)) for width, count in characters["filters"]),
            num_highway_layers=characters["n_highway"],
            units=lstm["dim"],
            projection=lstm["projection_dim"],
            num_layers=lstm["n_layers"],
            memory_clip=lstm["cell_clip"] and float(lstm["cell_clip"]),
            output_clip=lstm["proj_clip"] and float(lstm["proj_clip"]),
            max_characters=characters["max_characters_per_token"],
        )
    except (OSError, ValueError, KeyError, TypeError) as error:
        if isinstance(error, InputError):
            raise
        raise InputError(f"{path} is damaged, or no options of ELMo ({error!r}); fetch it again") from None


def _to_ours(config: ElmoConfig, tensors: Mapping[str, np.ndarray], weights: Path) -> dict[str, np.ndarray]:
    """Their arrays by our paths, as far as they are there."""
    ours: dict[str, np.ndarray] = {}

    def take(name: str, path: str, change: Any = None) -> None:
        if name not in tensors:
            raise InputError(f"{weights} lacks {name}; it is not the file of these options, or cut short")
        ours[path] = tensors[name] if change is None else change(tensors[name])

    def gates(x: np.ndarray) -> np.ndarray:
        """Input, candidate, forget, output there; input, forget, candidate, output here."""
        i, candidate, f, o = np.split(x, 4, axis=-1)
        return np.concatenate([i, f, candidate, o], axis=-1)

    def bias(x: np.ndarray) -> np.ndarray:
        i, f, candidate, o = np.split(gates(x), 4)
        return np.concatenate([i, f + 1, candidate, o])

    take("char_embed", "words/characters")
    for n in range(len(config.filters)):
        take(f"CNN/W_cnn_{n}", f"words/filter_{n}", lambda x: x[0])
        take(f"CNN/b_cnn_{n}", f"words/bias_{n}")
    for n in range(config.num_highway_layers):
        for part in ("carry", "transform"):
            take(f"CNN_high_{n}/W_{part}", f"words/{part}_{n}/kernel")
            take(f"CNN_high_{n}/b_{part}", f"words/{part}_{n}/bias")
    take("CNN_proj/W_proj", "words/projection/kernel")
    take("CNN_proj/b_proj", "words/projection/bias")
    for number, direction in enumerate(("forward", "backward")):
        for n in range(config.num_layers):
            theirs = f"RNN_{number}/RNN/MultiRNNCell/Cell{n}/LSTMCell"
            path = f"{direction}_{n}/weights"
            take(f"{theirs}/W_0", f"{path}/input", lambda x: gates(x[: config.projection]))
            take(f"{theirs}/W_0", f"{path}/recurrent", lambda x: gates(x[config.projection :]))
            take(f"{theirs}/B", f"{path}/bias", bias)
            take(f"{theirs}/W_P_0", f"{path}/projection")
    return ours
