"""What `pip install rss-rl` brings along: all that the library imports, and no tool of ours."""

from __future__ import annotations

import sys
import tomllib
from collections.abc import Iterable
from importlib.metadata import PackageNotFoundError, packages_distributions, requires
from pathlib import Path
from typing import Any

import grimp
import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

EXTRAS = ("data", "serve", "transformers")
"""Those of users; `dev` and `docs` are for whoever works on the library."""
NOT_HERE = {"mlflow", "trackio", "triton", "wandb"}
"""Extras that are not installed for the tests; triton comes with builds of torch that use it."""


def closure(wanted: Iterable[str]) -> set[str]:
    """Names of the packages that are installed with `wanted`, of those that are installed here."""
    found: set[tuple[str, str]] = set()
    waiting = [Requirement(text) for text in wanted]
    while waiting:
        requirement = waiting.pop()
        name = canonicalize_name(requirement.name)
        for extra in {"", *requirement.extras} - {e for n, e in found if n == name}:
            found.add((name, extra))
            try:
                needed = [Requirement(text) for text in requires(name) or ()]
            except PackageNotFoundError:  # of another platform
                continue
            waiting += [r for r in needed if not r.marker or r.marker.evaluate({"extra": extra})]
    return {name for name, _ in found}


@pytest.fixture(scope="module")
def project(repository: Path) -> dict[str, Any]:
    """The table `project` of pyproject.toml."""
    with (repository / "pyproject.toml").open("rb") as file:
        found: dict[str, Any] = tomllib.load(file)["project"]
    return found


def test_the_library_imports_nothing_but_its_dependencies(project: dict[str, Any]) -> None:
    graph = grimp.build_graph("rss_rl", include_external_packages=True, cache_dir=None)
    imported = {module for module in graph.modules if not module.startswith("rss_rl")}
    outside = imported - sys.stdlib_module_names
    extras = project["optional-dependencies"]
    brought = closure([*project["dependencies"], *(t for e in EXTRAS for t in extras[e])])
    owners = packages_distributions()
    missing = {
        name: sorted(graph.find_modules_that_directly_import(name))
        for name in outside - NOT_HERE
        if not {canonicalize_name(owner) for owner in owners.get(name, ())} & brought
    }
    assert len(outside) > 15
    assert not missing
