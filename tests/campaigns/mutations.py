"""Random damage to what a file holds."""

import copy
import random
from collections.abc import Iterator
from typing import Any


def nested(depth: int) -> list:
    value: list = []
    for _ in range(depth):
        value = [value]
    return value


ODD = [None, True, False, -1, 0, 1, -0.5, 1e308, 10**9, 2**31, 10**30, float("nan"), float("inf"), nested(200)]
ODD += ["", "x", "gelu", "../../x", "\ud800", "[/nope]", [], {}, [1, 2], [["a"]], {"a": 1}]


def mutated(value: Any, draw: random.Random) -> tuple[Any, str]:
    """A JSON value with one thing in it removed or replaced by an odd one, and what that was."""

    def places(inside: Any, path: tuple = ()) -> Iterator[tuple]:
        items = inside.items() if isinstance(inside, dict) else enumerate(inside) if isinstance(inside, list) else ()
        for key, child in list(items)[:50]:
            yield (*path, key)
            yield from places(child, (*path, key))

    value = copy.deepcopy(value)
    *path, last = draw.choice(list(places(value)))
    target = value
    for key in path:
        target = target[key]
    if draw.random() < 0.2:
        del target[last]
        return value, f"without {(*path, last)}"
    target[last] = draw.choice(ODD)
    return value, f"{(*path, last)} is {target[last]!r:.60}"


def damaged(content: bytes, draw: random.Random) -> tuple[bytes, str]:
    """The content of a file, cut, flipped, or something else altogether; and which."""
    index = draw.randrange(len(content))
    flipped = bytearray(content)
    flipped[index] ^= 1 << draw.randrange(8)
    others = {
        "flipped": bytes(flipped),
        "cut": content[:index],
        "not UTF-8": content[:index] + b"\xff" + content[index + 1 :],
        "deep": b"[" * 200_000,
        "empty": b"",
        "a list": b"[]",
        "digits": b'{"a": ' + b"9" * 6000 + b"}",
    }
    name = draw.choice(list(others))
    return others[name], f"{name} at {index}"
