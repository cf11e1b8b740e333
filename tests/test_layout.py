"""The house rules that no linter knows: what an import pulls in, and packaging lists."""

from __future__ import annotations

import doctest
import importlib.util
import os
import pkgutil
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from setuptools import Distribution

import rss_rl

FOLDERS = ("rss_rl", "envs", "learners")
RAY_PACKAGE = "rss_rl.cluster"
NEEDS_TRITON = "rss_rl.ops.attention_triton"
REPOSITORY = Path(__file__).resolve().parent.parent


def modules() -> list[str]:
    """Every module of the package that can be imported on this machine."""
    found = ["rss_rl", *(m.name for m in pkgutil.walk_packages(rss_rl.__path__, "rss_rl."))]
    if importlib.util.find_spec("triton") is None:
        found = [name for name in found if not name.startswith(NEEDS_TRITON)]
    return found


def imported_by(names: list[str]) -> set[str]:
    """Top-level packages in memory after a fresh interpreter has imported `names`."""
    code = "import sys, importlib\nfor name in sys.argv[1:]: importlib.import_module(name)\n"
    code += "print(*sorted({name.partition('.')[0] for name in sys.modules}))"
    command = [sys.executable, "-c", code, *names]
    return set(subprocess.run(command, check=True, capture_output=True, text=True).stdout.split())


def test_the_library_imports_neither_ray_nor_torch() -> None:
    assert not {"ray", "torch"} & imported_by(["rss_rl"])


def test_triton_is_imported_for_its_kernels_alone() -> None:
    names = ["rss_rl.models.build", "rss_rl.ops.attention", "rss_rl.cli.main"]
    assert "triton" not in imported_by(names)


def test_only_one_package_imports_ray() -> None:
    others = [name for name in modules() if not name.startswith(RAY_PACKAGE)]
    assert "ray" not in imported_by(others)


def test_the_data_room_imports_no_torch() -> None:
    names = [name for name in modules() if name.startswith("rss_rl.data")]
    assert "torch" not in imported_by(["rss_rl.config", *names])


def test_every_file_is_in_the_wheel(monkeypatch: pytest.MonkeyPatch) -> None:
    """Packages are listed by name, and other files by how they end: a new one may be in no list."""
    monkeypatch.chdir(REPOSITORY)
    distribution = Distribution({"script_name": "setup.py"})
    distribution.parse_config_files()
    distribution.include_package_data = False  # else what an earlier build packed counts, too
    wheel = distribution.get_command_obj("build_py")
    wheel.ensure_finalized()
    packed = {path for *_, path in wheel.find_all_modules()}
    packed |= {f"{source}/{name}" for _, source, _, names in wheel.data_files for name in names}
    command = ["git", "ls-files", "rss_rl", "envs", "learners", "configs"]
    listed = subprocess.run(command, check=True, capture_output=True, text=True).stdout.split()
    assert {os.path.relpath(path) for path in packed} == {
        path for path in listed if not os.path.islink(path)
    }


def test_every_dependency_is_pinned() -> None:
    with (REPOSITORY / "pyproject.toml").open("rb") as file:
        project = tomllib.load(file)["project"]
    wanted = [*project["dependencies"], *project["optional-dependencies"]["dev"]]
    pins = (REPOSITORY / "constraints.txt").read_text().splitlines()
    pinned = {line.partition("==")[0].lower() for line in pins if "==" in line}
    assert {re.split(r"[^\w.-]", name)[0].lower() for name in wanted} <= pinned


@pytest.mark.parametrize("name", [n for n in modules() if not n.startswith(RAY_PACKAGE)])
def test_examples_in_docstrings_hold(name: str) -> None:
    results = doctest.testmod(importlib.import_module(name))
    assert results.failed == 0
