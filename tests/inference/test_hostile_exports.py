"""Whatever a stranger's export lists or is, opening it touches nothing outside its folder."""

from __future__ import annotations

import json
import os
import resource
import shutil
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import rss_rl
from rss_rl.durable import file_sha256
from rss_rl.errors import CheckpointError, ConfigError, RssError
from rss_rl.inference.artifact import EXPORT_FILE, WEIGHTS_FILE, export_run, pack_model
from rss_rl.inference.model import load_model
from rss_rl.serving.payloads import data_examples

SECRET = "secret.json"
"""A file beside the export, of which a stranger knows the checksum."""


@pytest.fixture(scope="module")
def whole(run: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return export_run(run, tmp_path_factory.mktemp("whole") / "model")


@pytest.fixture
def export(whole: Path, tmp_path: Path) -> Path:
    """A copy of an export to tamper with, beside a secret."""
    (tmp_path / SECRET).write_text('{"secret": 1}')
    return shutil.copytree(whole, tmp_path / "stranger" / "model")


def change(export: Path, edit: Callable[[dict[str, Any]], object], name: str = EXPORT_FILE) -> None:
    """Edit a file of an export, and let its checksum agree."""
    record = json.loads((export / name).read_text())
    edit(record)
    (export / name).write_text(json.dumps(record))
    if name == "manifest.json":
        sums = {name: file_sha256(export / name)}
        change(export, lambda record: record["sha256"].update(sums))


def linked_file(export: Path, secret: Path) -> str:
    (export / "pretrained-0").mkdir()
    (export / "pretrained-0" / "config.json").symlink_to(secret)
    return "pretrained-0/config.json"


def linked_folder(export: Path, secret: Path) -> str:
    (export / "pretrained-0").symlink_to(secret.parent)
    return f"pretrained-0/{secret.name}"


def linked_weights(export: Path, secret: Path) -> str:
    (export / WEIGHTS_FILE).rename(secret.parent / "weights")
    (export / WEIGHTS_FILE).symlink_to(secret.parent / "weights")
    return WEIGHTS_FILE


def linked_record(export: Path, secret: Path) -> str:
    (export / EXPORT_FILE).rename(secret.parent / "record")
    (export / EXPORT_FILE).symlink_to(secret.parent / "record")
    return WEIGHTS_FILE


def pipe(export: Path, _: Path) -> str:
    (export / "pretrained-0").mkdir()
    os.mkfifo(export / "pretrained-0" / "config.json")
    return "pretrained-0/config.json"


def huge(export: Path, _: Path) -> str:
    with (export / WEIGHTS_FILE).open("r+b") as file:
        file.truncate(1 << 43)
    return WEIGHTS_FILE


PLANTED = [linked_file, linked_folder, linked_weights, linked_record, pipe, huge]
LISTED = [
    f"../../{SECRET}", f"pretrained-0/../../../{SECRET}", f"./{WEIGHTS_FILE}", "/dev/zero",
    "pretrained-0/deep/config.json", "pretrained-0/..", "pretrained-0/model.bin", "pretrained-x/a",
    "..\\secret.json", "config.yaml", "", ".", "pretrained-0", "/", "pretrained-0/a\0.json",
]  # fmt: skip


@pytest.mark.parametrize("hostile", [None, *LISTED, *PLANTED])
def test_nothing_else_is_read(
    hostile: str | Callable[[Path, Path], str] | None, export: Path, tmp_path: Path
) -> None:
    secret = tmp_path / SECRET
    if hostile is None:
        name = str(secret)
    elif isinstance(hostile, str):
        name = hostile
        (export / "pretrained-0").mkdir()  # so that `pretrained-0/..` exists
    else:
        name = hostile(export, secret)
    known = hostile not in (pipe, huge) and os.path.isfile(f"{export / name}".replace("\0", ""))
    sum_ = file_sha256(export / name) if known else "0" * 64
    change(export, lambda record: record["sha256"].update({name: sum_}))
    for use in (pack_model, rss_rl.load):
        with pytest.raises(CheckpointError) as error:
            use(export)
        assert str(export) in error.value.where
        assert error.value.remedy


@pytest.mark.parametrize("name", ["../../planted.json", "/{root}/planted.json", "planted.json"])
def test_nothing_else_is_written(
    name: str, whole: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root = tmp_path / "a" / "b"
    root.mkdir(parents=True)
    monkeypatch.setattr(tempfile, "tempdir", str(root))
    packed = pack_model(whole)
    name = name.replace("/{root}", str(tmp_path))
    with pytest.raises(RssError, match="no file of an export"):
        load_model(replace(packed, files={**packed.files, name: b"{}"}))
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A gigabyte more than the process has."""
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def encoder(name: str, **options: object) -> Callable[[dict[str, Any]], None]:
    return lambda tree: tree["model"].update(encoder={"name": name, "options": options})


SIZES: list[Callable[[dict[str, Any]], None]] = [
    lambda tree: tree["model"].update(hidden=60_000),
    lambda tree: tree["model"].update(hidden=2**60),
    lambda tree: tree["model"].update(head_hidden=2**30),
    lambda tree: tree["policy"]["options"].update(hidden=2**40),
    encoder("hierarchical-cnn", layers=10**8),
    encoder("cnn", windows=[1] * 10**6),
    encoder("cnn", windows=[2**30]),
]


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("size", SIZES)
def test_sizes_are_those_of_the_weights_before_memory_is_taken(
    size: Callable[[dict[str, Any]], None], export: Path, run: Path, tmp_path: Path
) -> None:
    """Of an export, and of a run."""
    change(export, lambda record: size(record["config"]))
    copy = shutil.copytree(run, tmp_path / "run")
    change(copy, lambda record: size(record["config"]), "config.json")
    for path in (export, copy):
        with pytest.raises((CheckpointError, ConfigError), match="do not fit|more than|too large"):
            rss_rl.load(path)


@pytest.mark.parametrize("scores", [3, {"dev": [1]}, {"test": {"thresholded": {"loss": "x"}}}])
def test_scores_are_numbers(scores: object, export: Path) -> None:
    change(export, lambda record: record.update(scores=scores))
    with pytest.raises(CheckpointError, match="does not hold scores"):
        rss_rl.load(export)


PLACES = ["memory://place/data", "http://localhost:9/data", "{folder}"]


@pytest.mark.parametrize("place", PLACES)
def test_what_an_export_names_elsewhere_is_not_opened(
    place: str, export: Path, run: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its data, the run it began with, a folder of a transformer or a name on the hub."""
    opened: list[object] = []
    for name in ("rss_rl.data.locations.open_storage", "rss_rl.pretrained.folder._checked"):
        monkeypatch.setattr(name, opened.append)
    monkeypatch.setattr("rss_rl.pretrained.folder._fetched", opened.append)
    place = place.format(folder=json.loads((run / "config.json").read_text())["config"]["data"])
    change(export, lambda record: record["config"].update(data=place))
    change(export, lambda record: record["config"]["policy"].update(from_run=str(run)))
    model = rss_rl.load(export)
    assert model.config.policy.from_run is None
    assert data_examples(model) == []
    encoders = encoder("transformer", pretrained=place.removeprefix("memory://"))
    change(export, lambda record: encoders(record["config"]))
    with pytest.raises(CheckpointError, match="names .* which is not in the export"):
        rss_rl.load(export)
    assert opened == []
