"""A trained run, opened: its models with the weights of a checkpoint, and its data."""

from __future__ import annotations

from pathlib import Path

from rss_rl.components import NOTHING, Trust
from rss_rl.config import RunConfig
from rss_rl.data.locations import cached_files
from rss_rl.data.manifest import MANIFEST_FILE
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.durable import file_sha256
from rss_rl.errors import DataError
from rss_rl.reading.memory import memory_errors
from rss_rl.reading.models import Models, open_data, restored_models
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.storage import is_uri


@memory_errors("for the model", "Use a machine with more, or end other programs")
def open_models(
    path: Path | str, which: str | int = "best", trust: Trust = NOTHING
) -> tuple[RunConfig, Models, Prepared]:
    """A run's configuration, its models with the weights of a checkpoint, and its inputs.

    The third is the prepared dataset without its splits: vocabulary, vectors, tokenizer.

    Args:
        trust: in components that the run names as package.module:OBJECT.

    Raises:
        RssError: no run, no such checkpoint, or files that do not fit each other.
    """
    path = Path(path)
    run = RunDirectory.open(path)
    config = run.parsed_config(trust, in_use=True)
    # The comparison with every token reads the inputs of the run it belongs to.
    folder = run.inputs if run.inputs.is_dir() else run.path.parent / run.inputs.name
    inputs = open_prepared(folder)
    return config, restored_models(config, inputs, load_checkpoint(path, which).tensors), inputs


def data_of(config: RunConfig, inputs: Prepared, trust: Trust = NOTHING) -> Prepared:
    """A run's data with their splits, of which it keeps the `inputs`.

    Args:
        trust: opens data at a URI of which this machine has no copy.

    Raises:
        DataError: they cannot be read, or have been prepared again since; or only the run names
            their URI.
    """
    if not is_uri(config.data) or trust.admits(config.data):
        prepared = open_data(config)
    else:
        files = cached_files(config.data, file_sha256(inputs.folder / MANIFEST_FILE))
        if files is None:
            raise untrusted_data(config.data, "Trust it with --trust-plugins (trust_plugins=True)")
        prepared = Prepared(files)
    if prepared.manifest != inputs.manifest:
        raise DataError(
            "the data are not those the run was trained on",
            where=config.data,
            remedy="Prepare them as they were, or train again",
        )
    return prepared


def untrusted_data(uri: str, remedy: str) -> DataError:
    """The error for data at a URI that only a run names."""
    return DataError("an address that only the run names, not opened", where=uri, remedy=remedy)
