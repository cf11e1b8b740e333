"""The picture of the rooms in CONTRIBUTING.md is the code's."""

from __future__ import annotations

import re
from collections.abc import Mapping, Set
from pathlib import Path

import grimp
from fences import pages


def rooms() -> dict[str, set[str]]:
    """Rooms, and those that each imports."""
    graph = grimp.build_graph("rss_rl", cache_dir=None)
    found: dict[str, set[str]] = {}
    packages = {name for name in graph.find_children("rss_rl") if graph.find_children(name)}
    for package in packages:
        modules = {package} | graph.find_descendants(package)
        imported = {name for m in modules for name in graph.find_modules_directly_imported_by(m)}
        others = {".".join(name.split(".")[:2]) for name in imported} & packages - {package}
        found[package.removeprefix("rss_rl.")] = {o.removeprefix("rss_rl.") for o in others}
    return found


def reduced(edges: Mapping[str, Set[str]]) -> set[tuple[str, str]]:
    """Edges that no longer way stands for."""

    def reach(start: str) -> set[str]:
        return edges[start] | {far for near in edges[start] for far in reach(near)}

    return {
        (room, other)
        for room, others in edges.items()
        for other in others
        if not any(other in reach(between) for between in others - {other})
    }


def test_the_picture_is_the_codes(repository: Path) -> None:
    text = (repository / "CONTRIBUTING.md").read_text(encoding="utf-8")
    picture = text.partition("<!-- rooms:start -->")[2].partition("<!-- rooms:end -->")[0]
    assert set(re.findall(r"(\w+) --> (\w+)", picture)) == reduced(rooms())


def test_paths_that_pages_name_are_there(repository: Path) -> None:
    texts = {page: page.read_text(encoding="utf-8") for page in pages(repository)}
    texts.pop(repository / "CHANGELOG.md")
    form = r"`((?:rss_rl|envs|learners|docs|configs|examples)/[\w./]+)`"
    named = [(page.name, path) for page, text in texts.items() for path in re.findall(form, text)]
    assert len(named) > 60
    assert not [found for found in named if not (repository / found[1]).exists()]
