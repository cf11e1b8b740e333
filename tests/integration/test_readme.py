"""What README and docs show in Python runs as it stands there; their links lead somewhere."""

from __future__ import annotations

import re
import sys
import types
from pathlib import Path

import pytest
from fences import fences, pages

from rss_rl.config import load_config
from rss_rl.data.corpora.planted import PlantedSettings, planted
from rss_rl.data.prepare import prepare
from rss_rl.packaged import find_config
from rss_rl.training.run import train


def test_the_python_examples(
    repository: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    blocks = [fence for page in pages(repository) for fence in fences(page)]
    codes = [f.text for f in blocks if f.language == "python" and f.excuse is None]
    monkeypatch.chdir(tmp_path)
    few = PlantedSettings(train=64, dev=16, test=16)
    prepare(planted(settings=few), Path("runs/demo-data"), dim=8)
    small = ["data=runs/demo-data", "model.hidden=8", "policy.options.hidden=8", "sampler.actors=1"]
    brief = [f"phases.{number}.steps=1" for number in range(3)]
    config = load_config(find_config("demo"), [*small, *brief, "evaluation.all_tokens=false"])
    list(train(config, Path("runs/demo")))
    for number, code in enumerate(codes):
        module = types.ModuleType(f"readme_{number}")  # classes that it makes are pickled
        monkeypatch.setitem(sys.modules, module.__name__, module)
        exec(compile(code, "README.md", "exec"), module.__dict__)
    said = capsys.readouterr().out
    assert re.search(r"\[\w+\][hd]", said)  # the environment
    assert "never chase" in said.replace("[", "").replace("]", "")  # what is loaded without a run
    assert "rss_rl.Run(" in said  # what is fitted


def test_links_lead_somewhere(repository: Path) -> None:
    assert len(pages(repository)) > 10
    for page in pages(repository):
        for target in re.findall(r"\]\(([^)#]+)(?:#[^)]*)?\)", page.read_text()):
            if "://" not in target:
                assert (page.parent / target).exists(), (page.name, target)
