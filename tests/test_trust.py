"""Nothing that is read from a file runs code, and damage to a file is an error of ours."""

from __future__ import annotations

import json
import shutil
import sys
from collections.abc import Callable, Iterator
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import pytest
from damaged import SHARD, refit, use
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from invoking import invoke
from tiny_runs import tiny_source, tiny_tree

import rss_rl
from rss_rl.api.planning import trust_in
from rss_rl.api.submit import entrypoint
from rss_rl.components import EVERYTHING, NOTHING, Trust
from rss_rl.config import load_config, parse_config, plugins_named
from rss_rl.data.prepare import prepare
from rss_rl.errors import ConfigError, RssError
from rss_rl.inference.artifact import EXPORT_FILE, export_run, open_result
from rss_rl.reading.trained_runs import open_models
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import train

STRANGER = "stranger:POLICY"
SHELL = {"name": "pydoc:pipepager", "options": {"cmd": "touch pwned"}}
Change = Callable[[dict[str, Any]], None]


def named(policy: dict[str, Any] | str) -> Change:
    """Another policy; given as a name it takes over the other keys of the section."""

    def change(record: dict[str, Any]) -> None:
        given = {"name": policy} if isinstance(policy, str) else policy
        kept = record["config"]["policy"] if isinstance(policy, str) else {}
        record["config"]["policy"] = {**kept, **given}

    return change


def rewrite(path: Path, change: Change) -> Path:
    """As a stranger would."""
    record = json.loads(path.read_text())
    change(record)
    path.write_text(json.dumps(record))
    return path.parent


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A run that was stopped, its export, and their data, which the run names by `data`."""
    folder = tmp_path_factory.mktemp("made")
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        prepare(tiny_source(), Path("data"), dim=6)
        tree = tiny_tree(Path("data"))
        tree["evaluation"]["all_tokens"] = False
        asked = iter([False] * 12 + [True])
        list(train(parse_config(tree, where=""), Path("run"), stop=lambda: next(asked)))
        export_run(Path("run"), Path("export"), which="latest")
        shutil.copy(Path("run", "config.yaml"), "own.yaml")
    return folder


@pytest.fixture
def place(made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A copy of it."""
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    sys.modules.pop("stranger", None)
    yield tmp_path
    assert not (tmp_path / "pwned").exists()


def run_command(*words: str) -> tuple[int, str]:
    found = invoke(words)
    return found.exit_code, found.output


@pytest.mark.parametrize("policy", [SHELL, {"name": "os:system"}, STRANGER], ids=str)
def test_an_export_cannot_name_code(place: Path, policy: dict[str, Any] | str) -> None:
    folder = rewrite(place / "export" / EXPORT_FILE, named(policy))
    with pytest.raises(ConfigError, match=r"export\.json: policy\.name: .*--trust-plugins"):
        rss_rl.load(folder)
    assert "stranger" not in sys.modules  # refused before it was imported


COMMANDS = [
    ("select", "the fox"),
    ("evaluate", "--split", "dev", "--mode", "thresholded", "--which", "latest"),
    ("export", "--which", "latest"),
    ("predict", "--input", "rows.csv", "--output", "o.csv", "--text", "t", "--which", "latest"),
    ("explain", "the fox", "--which", "latest"),
    ("report",),
]


@pytest.mark.parametrize("command", COMMANDS, ids=lambda words: words[0])
def test_a_run_cannot_name_code(place: Path, command: tuple[str, ...]) -> None:
    run = str(rewrite(place / "run" / "config.json", named(STRANGER)))
    (place / "rows.csv").write_text("t\nthe fox\n")
    first, *rest = command
    code, said = run_command(first, run, *rest)
    assert code == 2
    assert "stranger" not in sys.modules
    if first == "report":  # of a run that was stopped it has nothing to show, trusted or not
        return
    assert "policy.name" in said.replace("\n", "")
    more = ["--which", "latest"] if first == "select" else []
    code, said = run_command(first, run, *rest, *more, "--trust-plugins")
    assert code == 0, said
    assert "stranger" in sys.modules


def test_ones_own_run_resumes_when_its_plugin_is_named_again(place: Path) -> None:
    run = str(rewrite(place / "run" / "config.json", named(STRANGER)))
    assert run_command("train", "--resume", run)[0] == 2
    assert run_command("train", "--resume", run, "policy=stranger:OTHER")[0] == 2
    assert "stranger" not in sys.modules
    code, said = run_command("train", "--resume", run, f"policy={STRANGER}", "seed=77")
    assert code == 2, said  # the plug-in alone may be said again
    code, said = run_command("train", "--resume", run, f"policy={STRANGER}")
    assert code == 0, said
    again = rss_rl.Run(run, trust_plugins=Trust(names=frozenset({STRANGER})))
    assert again.finished
    assert again.resume().report == again.report


def test_a_storage_cannot_name_code(place: Path) -> None:
    run = place / "run"
    config = parse_config(json.loads((run / "config.json").read_text())["config"], where="")
    asked = chain([False], repeat(True))
    list(train(config, place / "one", storage=str(place / "kept"), stop=lambda: next(asked)))
    rewrite(place / "kept" / "config.json", named(STRANGER))
    words = ("train", "other", "--resume", "--storage", str(place / "kept"))
    code, said = run_command(*words)
    assert code == 2
    assert "policy.name" in said.replace("\n", "")
    with pytest.raises(RssError, match="differs from the run's in: policy"):
        list(train(config, place / "two", storage=str(place / "kept"), resume=True))
    assert "stranger" not in sys.modules


def test_a_file_in_a_run_an_export_or_a_job_is_anybodys(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    own = place / "own.yaml"
    own.write_text("seed: 1\n")
    assert trust_in(own) == EVERYTHING
    assert trust_in(place / "run" / "config.yaml") == NOTHING
    assert trust_in(place / "export" / "config.yaml") == NOTHING
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    assert trust_in(own) == NOTHING


def test_a_job_is_told_to_trust_what_its_user_named(place: Path) -> None:
    tree = json.loads((place / "run" / "config.json").read_text())["config"]
    plain = parse_config(tree, where="")
    tree["policy"]["name"] = STRANGER
    config = parse_config(tree, where="", trust=EVERYTHING)
    assert list(plugins_named(config)) == [("policy.name", STRANGER)]
    assert not list(plugins_named(plain))
    assert "--trust-plugins" in entrypoint("job", "/nfs/a", trust_plugins=True)
    assert "--trust-plugins" not in entrypoint("job", "/nfs/a")


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8)
    | st.sampled_from(["os:system", "stranger:function", STRANGER, "rss", "../../x", "a" * 5000])
    | st.sampled_from([-1, 2**31, 2**53, 2**64, float("nan"), -1e308, "/etc/passwd", "x\0"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner),
    max_leaves=6,
)  # fmt: skip
BYTES = st.binary(max_size=8) | st.sampled_from([*(b"%c" % c for c in b"&*!?:,[]{}<>|-#%@`\"'\n")])


def changed(node: Any, data: st.DataObject) -> Any:
    """A tree of JSON, with another value somewhere, or without one."""
    items = [*node.items()] if isinstance(node, dict) else [*enumerate(node)]
    key, value = data.draw(st.sampled_from(items))
    rest = dict(items) if isinstance(node, dict) else [*node]
    if isinstance(value, dict | list) and value and data.draw(st.booleans()):
        rest[key] = changed(value, data)
    elif data.draw(st.booleans()):
        del rest[key]
    else:
        rest[key] = data.draw(JSON)
    return rest


def damaged(content: bytes, data: st.DataObject) -> bytes:
    """With bytes changed, cut off, left out or added."""
    for _ in range(data.draw(st.integers(1, 4))):
        start = data.draw(st.integers(0, len(content)))
        end = start + data.draw(st.sampled_from([0, 1, 2, 4, 8, len(content)]))
        content = content[:start] + data.draw(BYTES) + content[end:]
    return content


def read_data(place: Path) -> None:
    """All of it; its checksums are made to agree, so that what files hold is looked at."""
    refit(place / "data")
    use(place / "data")


FILES: dict[str, Callable[[Path], object]] = {
    "own.yaml": lambda place: load_config(place / "own.yaml"),
    "data/manifest.json": lambda place: use(place / "data"),
    "data/vocabulary.json": read_data,
    f"data/{SHARD}": read_data,
    "data/vectors.safetensors": read_data,
    "export/export.json": lambda place: open_result(place / "export"),
    "export/manifest.json": lambda place: open_result(place / "export"),
    "run/config.json": lambda place: open_models(place / "run", "latest"),
    "run/inputs/manifest.json": lambda place: open_models(place / "run"),
    "run/checkpoints/step-*/state.json": lambda place: load_checkpoint(place / "run"),
    "run/checkpoints/step-*/tensors-*": lambda place: load_checkpoint(place / "run"),
}


@pytest.mark.parametrize("name", FILES)
@settings(
    max_examples=80,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
@given(data=st.data())
def test_any_damage_to_a_file_is_an_error_of_ours_or_harmless(
    place: Path, name: str, data: st.DataObject
) -> None:
    path = max(place.glob(name))
    original = path.read_bytes()
    if path.suffix == ".json" and data.draw(st.booleans()):
        path.write_text(json.dumps(changed(json.loads(original), data)))
    else:
        path.write_bytes(damaged(original, data))
    try:
        FILES[name](place)
    except RssError as error:
        assert error.where
    finally:
        path.write_bytes(original)
    assert "stranger" not in sys.modules
