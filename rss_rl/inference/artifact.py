"""The directory that `rss-rl export` writes: a self-contained trained model that needs no Ray.

export.json           schema version, configuration, checkpoint, scores, SHA-256 of other files
weights.safetensors   `classifier/...`, `policy/...`, and `vectors/fixed`, the word vectors that
                      were not fine-tuned
manifest.json         labels, tokenizer, data sources
vocabulary.json       the words by id
README.md             the model card, with the configuration for people
pretrained-N/         each folder that a component's option names, such as a transformer
encoder/              on request: the trained transformer, for other programs
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from pydantic import TypeAdapter, ValidationError

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig, parse_config, with_folders
from rss_rl.data.manifest import (
    HELD_OUT_FILE,
    MANIFEST_BYTES,
    MANIFEST_FILE,
    SUBWORDS_FILE,
    VECTORS_FILE,
    VOCABULARY_BYTES,
    VOCABULARY_FILE,
    Manifest,
)
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.durable import (
    disk_errors,
    file_sha256,
    new_folder,
    plain_bytes_inside,
)
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.json_files import first_fault, read_json, read_record
from rss_rl.metrics.measures import leading_measures, score_sentences
from rss_rl.models.encoders.encoder import SavedEncoder
from rss_rl.pretrained.folder import is_plain, open_pretrained, plain_files
from rss_rl.reading.memory import available_bytes
from rss_rl.reading.models import Models, restored_models
from rss_rl.reading.trained_runs import open_models
from rss_rl.runs.checkpoint import load_checkpoint, parse_step, read_pointer
from rss_rl.runs.run_directory import REPORT_FILE
from rss_rl.runs.tensor_file import read_tensors, write_tensors
from rss_rl.types import Array
from rss_rl.version import VERSION

Scores = Mapping[str, Mapping[str, Mapping[str, float | None]]]
"""By split, mode of selection and measure."""
_SCORES: TypeAdapter[Scores] = TypeAdapter(dict[str, dict[str, dict[str, float | None]]])
ModelCard = Callable[[RunConfig, Manifest, str, int, Scores], str]
SCHEMA_VERSION = 3
EXPORT_FILE, WEIGHTS_FILE = "export.json", "weights.safetensors"
_FIXED = "vectors/fixed"
_TUNED = "classifier/embedding.trainable"
_FOLDER_PREFIX = "pretrained-"
_ENCODER = "encoder"
_FOLDER = re.compile(rf"{_FOLDER_PREFIX}[0-9]+")
_CARD = "README.md"
_MOST = {MANIFEST_FILE: MANIFEST_BYTES, VOCABULARY_FILE: VOCABULARY_BYTES}
"""Bytes of a file at most; others must fit into memory."""
_AGAIN = "Export the run again"
_FREE_SPACE = "Free space, or give another DIR"


def export_run(
    run: Path,
    out: Path,
    *,
    which: str | int = "best",
    overwrite: bool = False,
    encoder: bool = False,
    card: ModelCard | None = None,
    trust: Trust = NOTHING,
) -> Path:
    """Export a run's checkpoint to a directory, atomically.

    Args:
        which: `best`, `latest` or a step.
        overwrite: replace an existing export.
        encoder: also write the classifier's encoder, a trained transformer, as a folder of its own,
            in the format of the transformers library.
        card: writes README.md of the configuration, the manifest, the run's name, the checkpoint's
            step and its scores; None: there is none.
        trust: see `open_models`.

    Returns:
        The directory, absolute.

    Raises:
        RssError: no such run or checkpoint, `out` holds something else, a write fails, or there is
            no transformer to write.
    """
    out = out.resolve()
    _check_free(out, overwrite)
    config, models, inputs = open_models(run, which, trust)
    saved = _saved_encoder(models, config, run) if encoder else None
    with (
        disk_errors(out, "cannot be written", _FREE_SPACE),
        new_folder(out) as staging,
    ):
        # Paths of the data and of another run on this machine mean nothing elsewhere.
        config = config.model_copy(update={"data": inputs.manifest.name})
        config = config.with_from_run(lambda _: None)
        config = _with_folders(config, partial(_copy_folder, staging))
        if saved is not None:
            saved.save(staging / _ENCODER)
        step = load_checkpoint(run, which).step
        name, scores = run.resolve().name, read_scores(run, step)
        if card is not None:
            text = card(config, inputs.manifest, name, step, scores)
            (staging / _CARD).write_text(text, encoding="utf-8")
        about = {"run": name, "step": step, "scores": scores}
        _fill(staging, config, models, inputs, about)
    return out


def _saved_encoder(models: Models, config: RunConfig, run: Path) -> SavedEncoder:
    encoder = getattr(models.classifier, "encoder", None)
    if not isinstance(encoder, SavedEncoder):
        raise ConfigError(
            f"the classifier's encoder, {config.model.encoder.name}, is not a transformer",
            where=str(run),
            remedy="Export it without --encoder",
        )
    return encoder


def _with_folders(config: RunConfig, change: Callable[[str], str]) -> RunConfig:
    """The configuration with `change` applied to the folders of transformers that a model reads."""
    parts = {"model": config.model, "policy": config.policy}
    changed = {key: with_folders(part, change) for key, part in parts.items()}
    # A reward model is not used again.
    reward = with_folders(config.reward, lambda name: Path(name).name)
    return config.model_copy(update={**changed, "reward": reward})


def _copy_folder(folder: Path, name: str) -> str:
    """Copy a folder, or what a name on a hub stands for, into the export; its new name."""
    source = Path(name).expanduser()
    source = source if source.is_dir() else open_pretrained(name).folder
    number = len(list(folder.glob(f"{_FOLDER_PREFIX}*")))
    target = folder / f"{_FOLDER_PREFIX}{number}"
    target.mkdir()
    for path in plain_files(source):
        shutil.copyfile(path, target / path.name)
    return f"./{target.name}"


def _check_free(out: Path, overwrite: bool) -> None:
    if not out.exists() or (out.is_dir() and not any(out.iterdir())):
        return
    if not is_export(out):
        raise CheckpointError(
            "the directory is not empty and holds no export",
            where=str(out),
            remedy="Choose one that is empty or does not exist",
        )
    if not overwrite:
        raise CheckpointError(
            "already holds an export", where=str(out), remedy="Replace it with --overwrite"
        )


def _fill(
    folder: Path, config: RunConfig, models: Models, inputs: Prepared, about: Mapping[str, Any]
) -> None:
    """Write all files, export.json with the checksums of the others last."""
    tensors: dict[str, Any] = {
        f"{part}/{name}": value
        for part, module in models.modules.items()
        for name, value in module.state_dict().items()
    }
    tensors[_FIXED] = models.classifier.embedding.fixed
    write_tensors(folder / WEIGHTS_FILE, tensors)
    # Weights have the vectors; nothing is trained here that would need what is held out.
    for name in {MANIFEST_FILE, *inputs.manifest.word_files()} - {VECTORS_FILE, HELD_OUT_FILE}:
        shutil.copyfile(inputs.folder / name, folder / name)
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    record = {
        "schema_version": SCHEMA_VERSION,
        "rss_rl": VERSION,
        **about,
        "config": config.model_dump(mode="json"),
        "sha256": {str(path.relative_to(folder)): file_sha256(path) for path in files},
    }
    text = json.dumps(record, indent=2, ensure_ascii=False) + "\n"
    (folder / EXPORT_FILE).write_text(text, encoding="utf-8")


def about_model(config: RunConfig, manifest: Manifest, scores: Scores) -> list[str]:
    """Sentences on a model: what it predicts and learnt from, how it reads, how well it does."""
    rows = f"{manifest.splits['train'].rows:,} rows of {manifest.name}"
    how = f"policy {config.policy.name}" if config.selects else "it reads every word"
    said = [
        f"Predicts {manifest.labels.described}; trained on {rows}.",
        f"Encoder {config.model.encoder.name}, {how}.",
    ]
    split = "test" if "test" in scores else "dev"
    modes = scores.get(split, {})
    metrics = (name for name in leading_measures() if any(name in row for row in modes.values()))
    if (metric := next(metrics, None)) is not None:
        said += score_sentences(modes, metric, split)[:1]
    return said


def read_scores(run: Path, step: int | None = None) -> Scores:
    """The scores of a run's best checkpoint by split and mode; empty without a report.

    Args:
        step: of the checkpoint that is wanted; None for the best.
    """
    file = run / REPORT_FILE
    report = read_json(file, remedy="Finish the run") if file.is_file() else {}
    return _scores(report.get("splits"), file) if step in (None, report.get("best_step")) else {}


def scores_of(run: Path, which: str | int) -> Scores:
    """The scores of a checkpoint; empty unless it is the best of a finished run."""
    step = which if isinstance(which, int) else parse_step(read_pointer(run, which))
    return read_scores(run, step)


def temperature(config: RunConfig, scores: Scores) -> float:
    """That a run's logits are divided by: with it, probabilities fit those of dev."""
    of_dev = scores.get("dev", {}).get("thresholded" if config.selects else "all", {})
    divisor = of_dev.get("temperature") or 1.0
    return divisor if 0.01 < divisor < 100 else 1.0  # else no run's


def _scores(tree: object, file: Path) -> Scores:
    try:
        return _SCORES.validate_python(tree or {})
    except ValidationError as error:
        what = f"does not hold scores ({first_fault(error)})"
        raise CheckpointError(what, where=str(file), remedy=_AGAIN) from error


def is_export(path: Path) -> bool:
    """Whether a directory looks like one that `export_run` wrote."""
    return os.path.isfile(path / EXPORT_FILE)


@dataclass(frozen=True)
class PackedModel:
    """An export in memory, as it was read once and verified; for use here or on other machines.

    where   its directory, for messages
    record  of export.json
    files   contents of the files that opening it needs, by name
    """

    where: str
    record: Mapping[str, Any]
    files: Mapping[str, bytes]

    def __str__(self) -> str:
        return self.where

    @property
    def sha256(self) -> str:
        """Of weights, vocabulary and configuration; the same for a run and its export."""
        sums = {name: self.record["sha256"][name] for name in self.files}
        content = json.dumps([self.record["config"], sums], sort_keys=True)
        return hashlib.sha256(content.encode()).hexdigest()

    def open(self, trust: Trust = NOTHING) -> tuple[RunConfig, Models, Prepared, Scores]:
        """See `open_result`."""
        tree, where = self.record.get("config"), str(Path(self.where, EXPORT_FILE))
        tree = tree if isinstance(tree, dict) else {}
        config = parse_config(tree, where=where, trust=trust, in_use=True)
        config = config.model_copy(update={"data": ""}).with_from_run(lambda _: None)
        with tempfile.TemporaryDirectory(prefix="rss-rl-") as name:
            folder = Path(name)
            with disk_errors(folder, "cannot be written", _FREE_SPACE):
                self._write(folder)
            config = _with_folders(config, partial(_resolve_folder, self.where, folder))
            inputs = open_prepared(folder)
            tensors = read_tensors(folder / WEIGHTS_FILE, _AGAIN)
            vectors = _vectors(self.where, inputs, tensors)
            models = restored_models(config, inputs, tensors, vectors)
            # These are kept, and the folder is not.
            _ = inputs.subwords, models.context and models.context.reader
        return config, models, inputs, _scores(self.record.get("scores"), Path(where))

    def _write(self, folder: Path) -> None:
        for name, content in self.files.items():
            if not _is_needed(name):  # what was packed elsewhere is not believed either
                raise _wrong(self.where, name, "is no file of an export")
            (folder / name).parent.mkdir(exist_ok=True)
            with (folder / name).open("xb") as file:
                file.write(content)


def open_result(
    path: Path | str | PackedModel, which: str | int = "best", trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared, Scores]:
    """Configuration, models in evaluation mode, vocabulary and scores of an export or a run.

    Args:
        which: checkpoint of a run; ignored for an export.
        trust: see `open_models`.

    Raises:
        RssError: there is neither, or its files are damaged.
    """
    if not isinstance(path, PackedModel):
        path = Path(path)
        if not is_export(path):
            return *open_models(path, which, trust), scores_of(path, which)
        path = _read_export(path)
    return path.open(trust)


def pack_model(path: Path, which: str | int = "best", trust: Trust = NOTHING) -> PackedModel:
    """Pack an export, or a run as it would be exported; arguments and errors as `open_result`."""
    if is_export(path):
        return _read_export(path)
    with tempfile.TemporaryDirectory(prefix="rss-rl-") as folder:
        return _read_export(export_run(path, Path(folder) / "export", which=which, trust=trust))


def _read_export(path: Path) -> PackedModel:
    """Read the files of an export that are needed, once each, and verify them before they are kept.

    Nothing else is opened, whatever export.json names; no link is followed.
    """
    if (path / EXPORT_FILE).is_symlink():
        raise _wrong(path, EXPORT_FILE, "cannot be read: a link")
    record = read_record(path / EXPORT_FILE, SCHEMA_VERSION, _AGAIN)
    sums = record.get("sha256")
    sums = sums if isinstance(sums, dict) else {}
    files = {}
    for name in dict.fromkeys((WEIGHTS_FILE, MANIFEST_FILE, VOCABULARY_FILE, *sums)):
        if name == _CARD or name.startswith(f"{_ENCODER}/"):
            continue
        if not _is_needed(name):
            raise _wrong(path, EXPORT_FILE, f"lists {name!r:.100}, which no export has")
        try:
            files[name] = plain_bytes_inside(path, name, _MOST.get(name, available_bytes()))
        except FileNotFoundError as error:
            raise _wrong(path, name, "missing") from error
        except (OSError, ValueError) as error:
            raise _wrong(path, name, f"cannot be read: {error}") from error
        if hashlib.sha256(files[name]).hexdigest() != sums.get(name):
            raise _wrong(path, name, "is not the file that was exported (its SHA-256 differs)")
    return PackedModel(str(path), record, files)


def _is_needed(name: str) -> bool:
    """Whether opening an export needs the file of this name."""
    folder, _, inside = name.rpartition("/")
    if not folder:
        return name in (WEIGHTS_FILE, MANIFEST_FILE, VOCABULARY_FILE, SUBWORDS_FILE)
    return _FOLDER.fullmatch(folder) is not None and is_plain(inside)


def _wrong(path: Path | str, name: str, what: str) -> CheckpointError:
    return CheckpointError(what, where=str(Path(path, name)), remedy=_AGAIN)


def _resolve_folder(export: str, unpacked: Path, name: str) -> str:
    """Path of a folder copied into the export."""
    inside = name.removeprefix("./")
    if _FOLDER.fullmatch(inside) is None or not (unpacked / inside).is_dir():
        raise _wrong(export, EXPORT_FILE, f"names '{name:.200}', which is not in the export")
    return str(unpacked / inside)


def _vectors(path: str, inputs: Prepared, tensors: dict[str, Any]) -> Array:
    """float32 [V, E], of all words."""
    manifest = inputs.manifest
    shape = (manifest.vocabulary.size, manifest.vectors.dim)
    parts = [tensors.get(_TUNED), tensors.pop(_FIXED, None)]
    fits = all(part is not None and part.shape[1:] == shape[1:] for part in parts)
    if not fits or sum(map(len, parts)) != shape[0]:
        what = f"does not hold the {shape[0]} word vectors of {MANIFEST_FILE}"
        raise _wrong(path, WEIGHTS_FILE, what)
    return np.concatenate(parts)
