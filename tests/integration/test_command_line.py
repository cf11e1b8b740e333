"""From a table of one's own to a report, as a user types it."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest
from invoking import invoke
from tiny_runs import command_line

CONFIG = """
data: data/pairs
batch_size: 16
model: {hidden: 8, activation: relu}
policy: {options: {hidden: 8}}
learner: {threads: 1}
evaluation: {every: 5}
phases:
  - {name: warm-up, supervised: true, selection: all, steps: 5}
  - {name: co-train, supervised: true, policy: true, steps: 5}
"""
MODES = {"all", "thresholded", "sampled", "random"}


def finish(*arguments: object, cwd: Path) -> str:
    """What a successful command prints."""
    out, err = command_line(*arguments, cwd=cwd).communicate(timeout=90)
    assert "Traceback" not in err
    assert "error" not in err, err
    return out


@pytest.fixture(scope="module")
def workplace(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory with a table of pairs, prepared, and a run trained on it."""
    place = tmp_path_factory.mktemp("workplace")
    draw = random.Random(0)
    lines = ["first,second,alike"]
    words = ("a", "man", "dog", "runs", "sleeps", "eats", "not", "the")
    for _ in range(150):
        texts = [" ".join(draw.choices(words, k=6))] * 2
        alike = draw.random() < 0.5
        texts[1] = texts[1] if alike else f"nobody {texts[1]}"
        lines.append(f"{texts[0]},{texts[1]},{'yes' if alike else 'no'}")
    (place / "pairs.csv").write_text("\n".join(lines) + "\n")
    (place / "pairs.yaml").write_text(CONFIG)
    columns = ("--text", "first", "--text-b", "second", "--label", "alike")
    made = finish(
        "data",
        "prepare",
        "pairs.csv",
        *columns,
        "--dim",
        6,
        "--out",
        "data/pairs",
        "--json",
        cwd=place,
    )
    assert json.loads(made)["sentences"] == 2
    finish("train", "pairs.yaml", "seed=3", cwd=place)
    return place


def run_of(workplace: Path) -> Path:
    return workplace / "runs" / "pairs-seed3"


def said(*arguments: object, code: int = 0) -> str:
    """What a command prints: its output, or its message where it ends with `code`."""
    result = invoke(arguments)
    assert result.exit_code == code, result.output
    assert "Traceback" not in result.output
    return result.stderr if code else result.stdout


def test_the_report_has_what_is_promised(workplace: Path) -> None:
    report = json.loads((run_of(workplace) / "report.json").read_text())
    wanted = {"parameters", "seed", "steps", "wall_seconds", "examples_per_second", "splits"}
    assert wanted <= report.keys()
    assert report["seed"] == 3
    assert report["steps"] == 10
    assert report["splits"].keys() == {"dev", "test"}
    for modes in report["splits"].values():
        assert modes.keys() == MODES
        for scores in modes.values():
            assert {"accuracy", "loss", "kept", "heads_kept", "dependents_kept"} <= scores.keys()
            assert all(0 <= scores[name] <= 1 for name in ("accuracy", "kept", "heads_kept"))
        assert modes["all"]["kept"] == 1


def test_evaluate_gives_the_numbers_of_the_report(workplace: Path) -> None:
    report = json.loads((run_of(workplace) / "report.json").read_text())
    for split in ("dev", "test"):
        record = json.loads(said("evaluate", run_of(workplace), "--split", split, "--json"))
        assert record[str(run_of(workplace))] == report["splits"][split]
    some = ("--mode", "sampled", "--mode", "all", "--which", "latest", "--json")
    record = json.loads(said("evaluate", run_of(workplace), *some))
    assert list(record[str(run_of(workplace))]) == ["sampled", "all"]
    assert "thresholded" in said(
        "evaluate", run_of(workplace), "--which", "5", "--mode", "all", "--mode", "thresholded"
    )


def test_select(workplace: Path) -> None:
    texts = ("The man runs not", "nobody snores .")
    record = json.loads(said("select", run_of(workplace), *texts, "--json"))
    assert [[token["word"] for token in part] for part in record["sentences"]] == [
        ["The", "man", "runs", "not"],
        ["nobody", "snores", "."],
    ]
    first, second = record["sentences"]
    assert all(token["known"] for token in first)  # 'The' as 'the'
    assert [token["known"] for token in second] == [True, False, False]
    assert sum(record["class_probabilities"].values()) == pytest.approx(1)
    best = max(record["class_probabilities"], key=record["class_probabilities"].get)
    assert record["prediction"] == best
    for token in (*first, *second):
        assert token["head"] == (token["head_probability"] > 0.5)
        assert token["dependent"] == (token["dependent_probability"] > 0.5)
    kept = [token["head"] or token["dependent"] for token in (*first, *second)]
    assert record["kept"] == pytest.approx(sum(kept) / 7)
    fewer = json.loads(said("select", run_of(workplace), *texts, "--share", "0.2", "--json"))
    assert fewer["kept"] == pytest.approx(2 / 7)  # at least one of each text
    text = said("select", run_of(workplace), *texts)
    assert "snores?" in text
    assert f"prediction: {best}" in text
