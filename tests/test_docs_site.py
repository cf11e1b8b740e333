"""The documentation site builds strictly, and its reference pages hold all that the program has."""

from __future__ import annotations

import importlib.util
import re
import resource
import subprocess
import sys
from pathlib import Path

import pytest
from cyclopts import App

import rss_rl
from rss_rl.cli.config import every_key
from rss_rl.cli.main import COMMANDS
from rss_rl.components import KINDS, built_in_names
from rss_rl.config.yaml_files import flat_settings

if importlib.util.find_spec("zensical") is None:
    pytest.skip("needs the extra `docs`: pip install 'rss-rl[docs]'", allow_module_level=True)

LONGEST_S = 60
"""Of processor time, which other work on the machine does not prolong much."""


def build(repository: Path, out: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, repository / "docs" / "build_site.py", "--out", out]
    return subprocess.run(command, capture_output=True, text=True, check=False)


@pytest.fixture(scope="module")
def site(repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The built site."""
    out = tmp_path_factory.mktemp("docs") / "site"
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    done = build(repository, out)
    assert done.returncode == 0, done.stdout + done.stderr
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime < LONGEST_S
    return out


def text_of(page: Path) -> str:
    """What a page says, without its tags."""
    found = re.sub(r"<[^>]+>", "", page.read_text(encoding="utf-8"))
    return found.replace("&lt;", "<").replace("&gt;", ">").replace("&amp;", "&")


def names(group: App, prefix: str) -> set[str]:
    """Full names of all commands below a group."""
    found = {f"{prefix} {name}": group[name] for name in group if not name.startswith("-")}
    return {*found, *(inner for name, part in found.items() for inner in names(part, name))}


def test_the_reference_names_every_command(site: Path) -> None:
    page = (site / "reference" / "cli.html").read_text(encoding="utf-8")
    headings = {text.split("<")[0] for text in re.findall(r"<h2[^>]*>(.*?)</h2>", page)}
    commands = names(COMMANDS, "rss-rl")
    assert len(commands) > 20
    assert commands <= headings


def test_the_reference_names_every_key_component_and_function(site: Path) -> None:
    settings = flat_settings(every_key().model_dump(mode="json"))
    keys = [key.rpartition(".")[2] for key, _ in settings]
    assert len(keys) > 50
    page = text_of(site / "reference" / "configuration.html")
    assert not [key for key in keys if f"{key}:" not in page]
    page = text_of(site / "reference" / "components.html")
    assert not [n for kind in KINDS for n in built_in_names(kind) if f" {n}" not in page]
    page = (site / "reference" / "api.html").read_text(encoding="utf-8")
    offered = [name for name in rss_rl.__all__ if not name.startswith("_")]
    assert not [name for name in offered if f'id="rss_rl.{name}"' not in page]
    assert 'id="rss_rl.testing.check_policy"' in page
