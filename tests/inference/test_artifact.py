"""An exported model is the run's, stands alone, and is there as a whole or not at all."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from readers import REVIEWS as TEXTS

import rss_rl
from rss_rl.data.store import open_prepared
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.inference.artifact import WEIGHTS_FILE, export_run
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.model import load_model
from rss_rl.models import attention_choice

ALONE = """
import sys
import rss_rl
assert "torch" not in sys.modules
model = rss_rl.load(sys.argv[1])
(sentence,), *_ = model.select(["the warm film"])
assert sentence.words == ("the", "warm", "film")
print(model.predict(["the warm film"])[0].class_probabilities)
assert model.predict(["a word unseen so far"])[0].known < 1
LEARN = "envs learners logs mirror results reward_models rollouts training".split()
others = ["gymnasium", "matplotlib", "nltk", "pandas", "ray", "scipy", "sklearn", "tensorboard"]
loaded = {*others, *(f"rss_rl.{room}" for room in LEARN)} & {*sys.modules}
assert not loaded, loaded
"""


@pytest.fixture(scope="module")
def exported(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(run, tmp_path_factory.mktemp("out") / "model")


def assert_alike(found: Explanation, expected: Explanation) -> None:
    assert found.prediction == expected.prediction
    assert found.class_probabilities == pytest.approx(expected.class_probabilities, abs=1e-6)
    for ours, theirs in zip(found.sentences, expected.sentences, strict=True):
        assert ours.words == theirs.words
        np.testing.assert_array_equal(ours.selection, theirs.selection)
        np.testing.assert_array_equal(ours.known, theirs.known)
        assert ours.probabilities is not None
        assert theirs.probabilities is not None
        np.testing.assert_allclose(ours.probabilities, theirs.probabilities, atol=1e-6)


def test_probabilities_are_those_that_fit_dev(run: Path, exported: Path) -> None:
    report = json.loads((run / "report.json").read_text())
    divisor = report["splits"]["dev"]["thresholded"]["temperature"]
    assert abs(divisor - 1) > 0.01
    for place in (run, exported):
        model = rss_rl.load(place)
        logits = model.logits(model.choose([model.encode((text,)) for text in TEXTS])).double()
        expected = (logits / divisor).softmax(-1).tolist()
        for found, shares in zip(model.predict(TEXTS), expected, strict=True):
            assert [*(found.class_probabilities or {}).values()] == pytest.approx(shares, abs=1e-5)


def test_it_predicts_as_the_run_does_one_by_one(run: Path, exported: Path) -> None:
    together = rss_rl.load(exported).predict(TEXTS)
    for text, found in zip(TEXTS, together, strict=True):
        assert_alike(found, load_model(run).explain(text))
    for found, expected in zip(rss_rl.load(run).predict(TEXTS), together, strict=True):
        assert_alike(found, expected)
    assert any(not sentence.known.all() for found in together for sentence in found.sentences)


@pytest.fixture(scope="module")
def compiled_run(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same run as if it had been trained with compiled attention."""
    path = shutil.copytree(run, tmp_path_factory.mktemp("compiled") / "run")
    record = json.loads((path / "config.json").read_text())
    record["config"]["model"]["attention"] = "compiled"
    (path / "config.json").write_text(json.dumps(record))
    return path


def test_no_transformer_is_exported_where_there_is_none(run: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="is not a transformer"):
        export_run(run, tmp_path / "model", encoder=True)
    assert not (tmp_path / "model").exists()


def lose_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(attention_choice, "missing_compiler", lambda: "no compiler here")


def test_compiled_attention_is_loaded_where_there_is_no_compiler(
    run: Path,
    exported: Path,
    compiled_run: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    lose_compiler(monkeypatch)
    expected = rss_rl.load(exported).predict(TEXTS)
    model = rss_rl.load(export_run(compiled_run, tmp_path / "model"))
    for found in (model, rss_rl.load(compiled_run)):
        for ours, theirs in zip(found.predict(TEXTS), expected, strict=True):
            assert_alike(ours, theirs)
    assert model.config.model.attention == "compiled"  # how it was trained stays on record


def test_three_lines_do_without_the_run_and_without_what_trained_it(
    run: Path, exported: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(exported, tmp_path / "elsewhere")
    (found,) = rss_rl.load(exported).predict(["the warm film"])
    for path in (moved, run):
        done = subprocess.run(
            [sys.executable, "-c", ALONE, str(path)], capture_output=True, text=True, cwd=tmp_path
        )
        assert done.returncode == 0, done.stderr
        assert done.stdout.strip() == str(found.class_probabilities)


def test_a_word_met_after_training_is_read_by_its_subwords(run: Path, exported: Path) -> None:
    known = max(open_prepared(run / "inputs").vocabulary.words, key=len)
    texts = [f"{known}s film", "qqqq film", "jjjj film"]
    said = [
        [found.class_probabilities for found in rss_rl.load(place).predict(texts)]
        for place in (run, exported)
    ]
    assert said[0] == said[1]
    alike, strange, stranger = said[0]
    assert alike != strange == stranger


@pytest.mark.parametrize(
    "name", [WEIGHTS_FILE, "vocabulary.json", "subwords.safetensors", "manifest.json"]
)
def test_a_changed_file_is_refused(name: str, exported: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(exported, tmp_path / "copy")
    content = bytearray((copy / name).read_bytes())
    content[len(content) // 2] ^= 1
    (copy / name).write_bytes(content)
    with pytest.raises(CheckpointError, match=f"{name}.*SHA-256"):
        rss_rl.load(copy)
    (copy / name).unlink()
    with pytest.raises(CheckpointError, match=f"{name}: missing"):
        rss_rl.load(copy)


def test_only_an_export_is_replaced_and_only_when_told(run: Path, tmp_path: Path) -> None:
    target = tmp_path / "model"
    export_run(run, target)
    with pytest.raises(CheckpointError, match="already holds an export.*--overwrite"):
        export_run(run, target)
    (target / "stray").touch()
    export_run(run, target, overwrite=True)
    assert not (target / "stray").exists()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "mine.txt").touch()
    with pytest.raises(CheckpointError, match="holds no export"):
        export_run(run, tmp_path / "other", overwrite=True)
    assert (tmp_path / "other" / "mine.txt").exists()
