"""The README.md of an export shows names of a stranger's data and run as they are, whatever is in
them."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from rss_rl.config import RunConfig
from rss_rl.data.manifest import SourceFile
from rss_rl.data.store import Prepared
from rss_rl.results.model_card import model_card


@pytest.mark.parametrize(
    "hostile",
    [
        *("\x1b]0;title\x07", "<script>alert(1)</script>", "\n# Heading\n", "`code`", "a | b"),
        *("\u202eleft", "\\`code`", "\n```\n<b>\n```", "*bold*", "&lt;", "![x](y)"),
    ],
)
def test_names_are_shown_as_they_are(hostile: str, tiny: Prepared, tiny_config: RunConfig) -> None:
    labels = replace(tiny.labels, names=(hostile, *tiny.labels.names[1:]))
    file = SourceFile(name=hostile, sha256=hostile)
    manifest = tiny.manifest.model_copy(
        update={"labels": labels, "name": hostile, "sources": (file,)}
    )
    config = tiny_config.model_copy(update={"data": hostile})
    scores = {"test": {"thresholded": {"accuracy": 0.5}}}
    card = model_card(config, manifest, hostile, 3, scores)
    assert all(sign.isprintable() for sign in card.replace("\n", ""))
    text = re.sub(r"(`{3,})(\w*)\n.*?\n\1$", "CODE", card, flags=re.DOTALL | re.MULTILINE)
    assert text.count("CODE") == 2
    headings = re.findall("^#+ (.*)", text, re.MULTILINE)
    assert headings[1:] == ["Use", "Scores", "Data", "Configuration"]
    literal = re.sub(r"\\[!-/:-@\[-`{-~]", "", text)
    assert not re.search(r"[<>`*&]|!\[", literal)
    assert {line.count("|") for line in literal.splitlines() if line[:1] == "|"} == {3}
