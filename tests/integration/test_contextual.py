"""A policy that reads what a pretrained encoder says of each word in its whole text."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from invoking import invoke
from tiny_runs import Outcome, stop_and_resume

import rss_rl
from rss_rl.api.encode import encode
from rss_rl.config import RunConfig
from rss_rl.data.states import STATES_FILE, stored_states
from rss_rl.data.store import open_prepared
from rss_rl.errors import ConfigError, DataError
from rss_rl.inference.artifact import export_run
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import build_prepared_models, open_data
from rss_rl.results.scores import open_with_data
from rss_rl.training.run import train

_CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert")


@pytest.fixture(scope="module")
def data(
    tiny: Callable[..., RunConfig], folder: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A copy of the tiny data with states beside them."""
    copy = tmp_path_factory.mktemp("encoded") / "data"
    shutil.copytree(tiny().data, copy)
    encode(copy, str(folder))
    return copy


@pytest.fixture(scope="module")
def configured(
    tiny: Callable[..., RunConfig], data: Path, folder: Path
) -> Callable[..., RunConfig]:
    def make(**changes: Any) -> RunConfig:
        policy = {"name": "rss", "reads": "contextual", "pretrained": str(folder)}
        alone = {"all_tokens": False}
        return tiny(**{"data": str(data), "policy": policy, "evaluation": alone, **changes})

    return make


@pytest.fixture(scope="module")
def run(configured: Callable[..., RunConfig], tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("contextual") / "run"
    list(train(configured(), path))
    return path


def test_what_is_stored_is_what_is_computed_in_use(configured: Callable[..., RunConfig]) -> None:
    config = configured()
    prepared = open_data(config)
    models = build_prepared_models(config, prepared)
    for split in ("train", "dev"):
        examples = prepared.split(split)
        rows = np.arange(len(examples))[::-3]
        batch = tensor_batch(examples.batch(rows), _CPU)
        stored = models.policy_inputs(batch)
        computed = models.policy_inputs(batch._replace(states=None))
        for (*_, valid, _, _, states), other in zip(stored, computed, strict=True):
            torch.testing.assert_close(states, other.states, rtol=1e-3, atol=1e-3)
            assert not states[~valid].any()
            assert states[valid].abs().sum(-1).min() > 0


def test_of_sentences_by_themselves(
    tiny: Callable[..., RunConfig], configured: Callable[..., RunConfig], folder: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Each as if it were the whole text, stored and in use, words of use included."""
    copy = tmp_path / "data"
    shutil.copytree(tiny().data, copy)
    encode(copy, str(folder))
    policy = {"name": "rss", "reads": "contextual", "pretrained": str(folder)}
    config = configured(data=str(copy), policy=policy | {"window": "sentence"})
    with pytest.raises(DataError, match=rf"none of {folder} --window sentence, only of {folder}\."):
        open_data(config)
    encode(copy, str(folder), window="sentence")
    prepared = open_data(config)
    batch = tensor_batch(prepared.split("dev").batch(np.arange(4)), _CPU)
    assert batch.states is not None
    context = build_prepared_models(config, prepared).context
    assert context is not None
    computed = context.states(batch.tokens[0], batch.valid[0])
    torch.testing.assert_close(batch.states[0].float(), computed, rtol=1e-3, atol=1e-3)

    first = len(prepared.vocabulary.words)
    context.add_words(["...", "new", "?!"])
    stop, new, ask = range(first, first + 3)
    # Two texts; the first has three sentences, of which one ends with two stops.
    tokens = torch.tensor([[2, 3, stop, ask, new, ask, 4, 5], [2, 3, 4, 5, 0, 0, 0, 0]])
    found = context.states(tokens, tokens > 0)
    whole = build_prepared_models(configured(), open_data(configured())).context
    assert whole is not None
    whole.add_words(["...", "new", "?!"])
    for text, words in ((0, slice(0, 4)), (0, slice(4, 6)), (0, slice(6, 8)), (1, slice(0, 4))):
        alone = tokens[text : text + 1, words]
        wanted = whole.states(alone, alone > 0)
        torch.testing.assert_close(found[text : text + 1, words], wanted, rtol=1e-4, atol=1e-5)
    assert not torch.allclose(whole.states(tokens, tokens > 0)[0, :2], found[0, :2])
    assert not found[1, 4:].any()
    nothing = torch.zeros(2, 3, dtype=torch.bool)
    assert not context.states(tokens[:, :3], nothing).any()


def test_stopped_and_resumed(
    configured: Callable[..., RunConfig], run: Path, tmp_path: Path
) -> None:
    stop_and_resume(configured(), tmp_path / "run", 17)
    Outcome.read(tmp_path / "run").assert_equals(Outcome.read(run))


def few_rows_a_file(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("rss_rl.api.encode._AHEAD", 8)
    monkeypatch.setattr("rss_rl.data.shard.SHARD_BYTES", 2000)


def test_resumed_with_other_states(
    tiny: Callable[..., RunConfig], data: Path, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """They would make it another run than one that never stopped."""
    copy = tmp_path / "data"
    shutil.copytree(data, copy)
    policy = {"name": "rss", "reads": "contextual", "pretrained": str(folder)}
    config = tiny(data=str(copy), policy=policy)
    made: list[object] = []
    list(train(config, tmp_path / "run", stop=lambda: bool(made.append(0)) or len(made) > 5))
    few_rows_a_file(monkeypatch)
    shutil.rmtree(copy / "states")
    encode(copy, str(folder))  # in other files
    with pytest.raises(DataError, match="not those the run began with"):
        list(train(config, tmp_path / "run", resume=True))


def test_in_use_it_selects_as_on_its_data(run: Path) -> None:
    _, _, prepared, _ = open_with_data(run, "best", None)
    model = rss_rl.load(run)
    split = prepared.split("dev")
    texts = [split.words(row)[0] for row in range(len(split))]
    stored = tensor_batch(split.batch(np.arange(len(split))), _CPU)
    with model.models.evaluating(), torch.no_grad():
        chances = model.models.distributions(stored)[0].probs
    for row, found in enumerate(model.select(texts)):
        count = len(found[0].words)
        np.testing.assert_allclose(
            found[0].probabilities, chances[row, :, :count].numpy(), atol=2e-3
        )


def test_an_export_takes_the_encoder_along(run: Path, folder: Path, tmp_path: Path) -> None:
    texts = ["w1 w2 w3", "unheard of w1", "words that nobody has seen"]
    before = rss_rl.load(run).predict(texts)
    moved = shutil.move(export_run(run, tmp_path / "export"), tmp_path / "moved")
    assert str(folder) not in (moved / "export.json").read_text()
    after = rss_rl.load(moved).predict(texts)
    assert [e.class_probabilities for e in after] == [e.class_probabilities for e in before]
    assert [str(e.sentences) for e in after] == [str(e.sentences) for e in before]


def test_encoding_resumes(
    tiny: Callable[..., RunConfig], data: Path, folder: Path, tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    """A kill between two files costs what was not written; the files are the same in the end."""
    copy = tmp_path / "data"
    shutil.copytree(tiny().data, copy)
    few_rows_a_file(monkeypatch)
    written: list[Path] = []

    def killed(path: Path) -> None:
        if len(written) == 3:
            raise KeyboardInterrupt
        written.append(path)

    with monkeypatch.context() as patch:
        patch.setattr("rss_rl.data.states.sync_file", killed)
        with pytest.raises(KeyboardInterrupt):
            encode(copy, str(folder))
    (begun,) = copy.rglob(STATES_FILE)
    record = json.loads(begun.read_text())
    assert stored_states(copy) == []
    kept = {path.stat().st_mtime_ns for path in sorted(begun.parent.glob("*.arrow"))[:3]}
    assert sum(len(files) for files in record["splits"].values()) == 3
    done: list[int] = []
    encode(copy, str(folder), progress=lambda _, count, __: done.append(count))
    digest = record["encoding"]["digest"]
    one, two = (
        open_prepared(place).with_states(str(folder), digest).split("train")
        for place in (copy, data)
    )
    rows = np.arange(len(one))
    left, right = one.batch(rows).states, two.batch(rows).states
    assert left is not None
    assert right is not None
    for a, b in zip(left, right, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-3)
    assert not begun.parent.exists()
    assert kept < {path.stat().st_mtime_ns for path in copy.rglob("*.arrow")}  # not written again


def _cut(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1])


def _flip(file: Path) -> None:
    file.write_bytes(file.read_bytes()[:-1] + b"?")


@pytest.mark.parametrize("split", ["train", "test"])
@pytest.mark.parametrize("damage", [Path.unlink, _cut, _flip])
def test_damaged_states_are_found_before_training_and_encoded_again(
    configured: Callable[..., RunConfig], folder: Path, tmp_path: Path, split: str,
    damage: Callable[[Path], None],
) -> None:  # fmt: skip
    """Of every split: those of test would be read after the last update."""
    copy = tmp_path / "data"
    shutil.copytree(configured().data, copy)
    file = next(copy.rglob(f"states-{split}-*.arrow"))
    whole = file.read_bytes()
    damage(file)
    with pytest.raises(DataError, match="its SHA-256|cannot be read|has .* bytes") as error:
        list(train(configured(data=str(copy)), tmp_path / "run"))
    again = f"rss-rl data encode {copy} --pretrained {folder}"
    assert again in str(error.value.remedy)
    assert not (tmp_path / "run").exists()
    encode(copy, str(folder))
    assert file.read_bytes() == whole
    assert len(open_data(configured(data=str(copy))).split("train").batch([0]).states or ()) == 1


def test_states_of_two_encoders_beside_the_same_data(
    configured: Callable[..., RunConfig], tmp_path: Path
) -> None:
    """Neither replaces the other, and each policy reads its own."""
    copy = tmp_path / "data"
    shutil.copytree(configured().data, copy)
    other = tiny_transformers.save(tmp_path / "other", seed=1)
    first = open_data(configured(data=str(copy)))
    encode(copy, str(other))
    policy = {"name": "rss", "reads": "contextual", "pretrained": str(other)}
    second = open_data(configured(data=str(copy), policy=policy))
    assert first.states_digest() != second.states_digest()
    assert first.states_digest() == open_data(configured(data=str(copy))).states_digest()
    one, two = (data.split("dev").batch([3]).states for data in (first, second))
    assert one is not None
    assert two is not None
    assert not np.allclose(one[0], two[0])
    shown = invoke(["data", "show", str(copy)]).stdout
    assert shown.count("8 numbers per token") == 2


def test_refused(
    tiny: Callable[..., RunConfig], configured: Callable[..., RunConfig], folder: Path,
    tmp_path: Path,
) -> None:  # fmt: skip
    """Before anything is written, each with the command that mends it."""
    bare = configured(data=tiny().data)
    with pytest.raises(DataError, match="there are none") as none:
        list(train(bare, tmp_path / "run"))
    assert "rss-rl data encode" in str(none.value)
    assert not (tmp_path / "run").exists()
    with pytest.raises(ConfigError, match="given together"):
        tiny(policy={"name": "rss", "reads": "contextual"})
    other = tiny_transformers.save(tmp_path / "other", seed=1)
    policy = {"name": "rss", "reads": "contextual", "pretrained": str(other)}
    with pytest.raises(DataError, match="only of"):
        list(train(configured(policy=policy), tmp_path / "run"))
    copy = tmp_path / "data"
    shutil.copytree(configured().data, copy)
    path = next(copy.rglob(STATES_FILE))
    record = json.loads(path.read_text())
    path.write_text(json.dumps(record | {"manifest": "0"}))
    with pytest.raises(DataError, match="of other data"):
        list(train(configured(data=str(copy)), tmp_path / "run"))
    record["splits"]["train"] = [{"name": "../x.arrow", "rows": 1, "bytes": 1, "sha256": ""}]
    path.write_text(json.dumps(record))
    with pytest.raises(DataError, match="cannot be read"):
        list(train(configured(data=str(copy)), tmp_path / "run"))
