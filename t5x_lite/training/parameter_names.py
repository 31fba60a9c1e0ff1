"""Many parameters in few words."""

from collections.abc import Iterable, Sequence

_PAIRED = ("generator", "discriminator")


def group(path: str) -> str:
    """A pattern for the part of the model that a parameter belongs to: a stack of layers, or what is named beside it.

    >>> [group(path) for path in ("encoder/layers/wi/kernel", "pooler/dense/bias", "generator/masked_lm/bias", "bias")]
    ['encoder/layers/*', 'pooler/*', 'generator/masked_lm/*', 'bias']
    """
    if "layers/" in path:
        return path[: path.index("layers/")] + "layers/*"
    names = path.split("/")
    depth = 2 if names[0] in _PAIRED else 1
    return "/".join(names[:depth]) + ("/*" if len(names) > depth else "")


def groups(paths: Iterable[str], of: Iterable[str] = ()) -> list[str]:
    """The parts of the model that some paths make up, and, of parts that have other paths among `of`, the paths.

    >>> groups(["a/b", "a/c", "d/e"], of=["a/b", "a/c", "d/e", "d/f"])
    ['a/*', 'd/e']
    """
    paths = list(paths)
    split = {group(path) for path in set(of) - set(paths)}
    return list(dict.fromkeys(path if group(path) in split else group(path) for path in paths))


def listed(names: Sequence[str], most: int = 8) -> str:
    """The names, of many the first.

    >>> listed(["a", "b", "c"], most=2)
    'a, b and 1 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more
