"""The page as a browser's parser reads it."""

import base64
import json
import re
from html.parser import HTMLParser

import numpy as np
import pytest

from t5x_lite.errors import InputError
from t5x_lite.pictures import attention as room
from t5x_lite.pictures.attention import attention_page, framed

HOSTILE = [
    "</script><script>alert(1)</script>",
    "<!--<script>",
    "</script ",
    "]]>",
    "&amp;",
    '"',
    "\\",
    "\u2028",
    "{{attention}}",
    "ж",
]


class Page(HTMLParser):
    """Elements by name, and what stands in each script."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.scripts, self.links = [], [], []
        self.feed(text)

    def handle_starttag(self, tag, attributes):
        self.tags.append(tag)
        self.links += [value for name, value in attributes if name in ("src", "href", "action", "data")]
        if tag == "script":
            self.scripts.append("")

    def handle_data(self, data):
        if self.lasttag == "script" and self.tags[-1] == "script":
            self.scripts[-1] += data


@pytest.fixture(scope="module")
def maps():
    random = np.random.default_rng(0)
    return {
        "self": (random.dirichlet(np.ones(10), (2, 3, 10)).astype(np.float32), HOSTILE, HOSTILE),
        "cross": (random.dirichlet(np.ones(10), (1, 2, 4)).astype(np.float32), list("abcd"), HOSTILE),
    }


def test_the_data_come_back_whatever_the_tokens(maps):
    page = Page(attention_page(maps, kind="cross", layer=0, head=1))
    assert len(page.scripts) == 2, "no token begins or ends a script"
    data = json.loads(page.scripts[0])
    assert data["start"] == {"kind": 1, "layer": 0, "head": 1}
    for (kind, (weights, queries, keys)), found in zip(maps.items(), data["kinds"], strict=True):
        assert (found["kind"], found["queries"], found["keys"]) == (kind, list(queries), list(keys))
        numbers = np.frombuffer(base64.b64decode(found["weights"]), "<u2").reshape(found["shape"])
        np.testing.assert_allclose(numbers / 65535, weights, atol=0.5 / 65535 + 1e-7)


def test_it_loads_nothing(maps):
    text = attention_page(maps)
    page = Page(text)
    assert page.links == ["data:,"]
    assert not re.search(r"https?:|@import|url\(|fetch\(|XMLHttpRequest|WebSocket|import\(", text)
    assert "default-src 'none'" in text
    assert "innerHTML" not in text


def test_a_frame_holds_the_page_and_nothing_more(maps):
    frame = Page(framed(maps))
    assert frame.tags == ["iframe"]


def test_a_page_too_large_for_a_browser(maps, monkeypatch):
    monkeypatch.setattr(room, "_MOST", 500)
    with pytest.raises(InputError, match="the page would hold 680 weights, and browsers open 500; give a shorter text"):
        attention_page(maps)
