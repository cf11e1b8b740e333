"""What `fit` makes of a table: prepared data, a configuration, and settings that fit them."""

from __future__ import annotations

import hashlib
import json
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, NamedTuple

import pyarrow as pa
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from rss_rl.api.encode import encode
from rss_rl.api.finetuning import (
    CLASSIFIER,
    UPDATES,
    Expected,
    expect,
    fine_tune,
    tuned_encoder,
)
from rss_rl.api.options import Overrides, Rows, TableOptions
from rss_rl.api.prepare import prepare
from rss_rl.api.rows import named_columns, split_files
from rss_rl.api.run import Run
from rss_rl.api.terminal import counted, say
from rss_rl.config import RunConfig, load_config, settings
from rss_rl.data.checks import as_number, is_missing, joined_labels
from rss_rl.data.manifest import MANIFEST_FILE, SCHEMA_VERSION, Manifest
from rss_rl.data.pretrained_vectors import ENCODER, PACKAGES, find_static
from rss_rl.data.store import open_prepared
from rss_rl.data.tables import (
    Record,
    column_names,
    column_types,
    file_kind,
    read_records,
    require_columns,
)
from rss_rl.data.vectors import check_vectors, source_file
from rss_rl.durable import as_text
from rss_rl.errors import ConfigError, DataError
from rss_rl.packaged import find_config
from rss_rl.pretrained.folder import cached_transformer

_EPOCHS = {
    "own": {"warm-up": 4.0, "parts": 3.0, "frozen": 2.0, "co-train": 6.0},
    "own_pairs": {"warm-up": 5.0, "co-train": 9.0},
    "own_long": {"warm-up": 2.0, "parts": 3.0, "frozen": 1.5, "co-train": 2.5, "settle": 1.25},
    "own_phrases": {"warm-up": 2.0, "parts": 3.0, "frozen": 1.5, "co-train": 2.5},
    CLASSIFIER: {"warm-up": 1.0, "parts": 1.0, "co-train": 4.0},
}
"""Epochs of each phase, for configurations whose batch size and phases follow from the data."""
_GAIN = "On 40% of the words of CR and SST-2 it was some 5 points better than GloVe, in 10 minutes."
_LONG_TEXT = 100
"""Mean words per text from which attention between all pairs of words is not used."""
_LOOKED_AT = 10_000
"""Rows inspected to tell classes from scores."""
_MOST_CLASSES = 20
"""Integer labels are classes if there are at most this many."""
_FEWEST, _MOST = 500, 6000
"""Bounds of the total updates: a small table needs dozens of epochs, a large one few. A transformer
needs fewer (UPDATES)."""
_PATIENCE_S = 1800.0
"""Without a limit of time, a transformer that takes longer than this is no classifier."""


class Choice(NamedTuple):
    """A setting or argument of `fit` that was chosen from the data, and the reason."""

    key: str
    value: Any
    why: str


class Adapted(NamedTuple):
    """What `fit` trains.

    config    name or file of the configuration
    settings  as KEY=VALUE, those of the user last
    words     the run that fine-tuned a transformer on all words, or None; if that was stopped, it
              is not finished, and the rest is not ready
    """

    config: str | Path
    settings: list[str]
    words: Run | None


class Wish(NamedTuple):
    """What `fit` was asked for, see there."""

    keep: float | None = None
    config: str | Path | None = None
    pretrained: str | None = None

    def check(self) -> None:
        """Refuse wishes that cannot be, or that contradict each other.

        Raises:
            ConfigError: in terms of the user's options.
        """
        if self.keep is not None and not (isinstance(self.keep, int | float) and 0 < self.keep < 1):
            raise ConfigError(
                f"{self.keep!r:.40} is not a share of the words between 0 and 1",
                where="keep (--keep)",
                remedy="Give one, such as 0.3",
            )
        if self.config is not None and self.pretrained is not None:
            raise ConfigError(
                "a transformer determines the configuration",
                where="pretrained (--pretrained)",
                remedy="Leave config (--config) out, or set the transformer there:"
                " policy.pretrained or model.encoder.options.pretrained",
            )


def run_name(data: Rows) -> str:
    """The name of the run: that of the file, if there is one."""
    first = data[0] if isinstance(data, list | tuple) and data else data
    return as_text(Path(first).stem) if isinstance(first, str | Path) else "own"


def adapt(
    data: Rows,
    text: str | int,
    label: str | int,
    overrides: Overrides,
    wish: Wish,
    table: TableOptions,
    folder: Path,
    console: Console,
    limit: float | None = None,
) -> Adapted:
    """Prepare a table, and choose a configuration and settings for it.

    A transformer that is to be the classifier is fine-tuned on all words here.

    Args:
        data, text, label, overrides, wish, table: see `fit`.
        folder: where the prepared data are put. console: for what was chosen, and why.
        limit: seconds for everything, or None.

    Raises:
        RssError: any expected failure.
    """
    wish.check()
    end = None if limit is None else monotonic() + limit
    if table.get("text_b") is not None:
        table["text_b"] = str(table["text_b"])
    read = data, str(text), str(label), table, wish.pretrained
    out, there, chosen = _prepared(*read, folder, console)
    manifest = open_prepared(out).manifest
    given = settings(overrides)
    share = _share(manifest, wish.keep)
    expected = _expected(out, wish, share.value)
    base, own = choose_encoder(manifest, wish.pretrained, _gpu(), expected, limit)
    if wish.config is not None:
        base, own = Choice("config", wish.config, "as asked"), []
    if wish.config is None or wish.keep is not None:
        own.append(share)
    if base.value in _EPOCHS:
        own = _not_overridden(own + schedule(manifest, base.value), given)
        own += _decays(base.value, own, given)
    own = _not_overridden(own, given)
    left_out = sum(info.bad_rows for info in manifest.splits.values())
    more = f", bad rows left out: {left_out:,}, see rejects.jsonl there" if left_out else ""
    say(console, f"Data: {out}{', already prepared' if there else ''}{more}")
    if joined := joined_labels(manifest.labels.names):
        say(console, f"Note: {joined}", "yellow")
    _say_choices(console, [*chosen, base, *own])
    if wish.config is None and wish.pretrained is None and (cached := cached_transformer()):
        say(console, f"At hand: --pretrained {cached}. {_GAIN}", "dim")
    fixed = {"data": str(out)}
    asked = [*settings(fixed), *_as_settings(own), *given]
    config = load_config(find_config(base.value), asked)
    words = None
    if wish.pretrained is not None and base.value == CLASSIFIER:
        left = None if end is None else max(1.0, end - monotonic())
        words = fine_tune(out, wish.pretrained, config, left, console)
        if not words.finished:
            return Adapted(base.value, asked, words)
        tuned = tuned_encoder(words)
        fixed |= {"policy.pretrained": tuned, "model.encoder.options.pretrained": tuned}
        asked = [*settings(fixed), *_as_settings(own), *given]
        config = load_config(find_config(base.value), asked)
    _encode(out, config, console)
    return Adapted(base.value, asked, words)


def _expected(data: Path, wish: Wish, share: float) -> Expected | None:
    """What the wished transformer would take as classifier; None without one, or with a GPU."""
    if wish.pretrained is None or _gpu() is not None:
        return None
    return expect(data, wish.pretrained, share)


def _prepared(
    data: Rows,
    text: str,
    label: str,
    how: TableOptions,
    pretrained: str | None,
    folder: Path,
    console: Console,
) -> tuple[Path, bool, list[Choice]]:
    """The folder of the prepared table, whether it was there already, and what was chosen."""
    with tempfile.TemporaryDirectory(prefix="rss-rl-rows-") as scratch:
        splits = {"rows": data, "dev": how.get("dev"), "test": how.get("test")}
        files = split_files(splits, Path(scratch), named_columns(text, label, how).all())
        how |= {"dev": files.get("dev"), "test": files.get("test")}
        named, vectors = _vectors(how.get("vectors"), how.get("dim"), pretrained)
        how["vectors"] = named
        asked = "label_weights" in how
        single = how.get("text_b") is None
        how.setdefault("label_weights", single)
        key = _key(files, text, label, named, how)
        task = Choice("task", how.get("task"), "as asked")
        if task.value is None:
            why = "from the labels; --task says otherwise"
            task = Choice("task", guess_task(files["rows"], label), why)
        how["task"] = task.value
        out = folder / f"{run_name(data)}-data-{key}"
        there = (out / MANIFEST_FILE).is_file()
        if not there:
            try:
                with counted(console, "preparing the data") as progress:
                    prepare(
                        files["rows"], out=out, text=text, label=label, progress=progress, **how
                    )
            except DataError:
                # Another call with the same table may have been faster.
                there = (out / MANIFEST_FILE).is_file()
                if not there:
                    raise
    why = "as asked" if asked else "single texts" if single else "pairs of texts"
    weights = Choice("label_weights", str(how["label_weights"]).lower(), why)
    return out, there, [task, vectors, weights]


def _encode(data: Path, config: RunConfig, console: Console) -> None:
    """Store the states that the policy reads, if it reads a pretrained encoder."""
    policy = config.policy
    if (encoder := policy.pretrained) is None:
        return
    device = config.learner.device
    how: dict[str, Any] = {"layers": policy.layers, "window": policy.window, "device": device}
    with counted(console, f"encoding the data with {encoder}") as progress:
        encode(data, encoder, **how, progress=progress)


def choose_encoder(
    manifest: Manifest,
    pretrained: str | None,
    gpu: str | None,
    expected: Expected | None = None,
    limit: float | None = None,
) -> tuple[Choice, list[Choice]]:
    """The configuration for text length and hardware, and settings that belong to it.

    A transformer is the classifier on a GPU, and where that takes no longer than the limit. Else it
    encodes each text once before training: its states are the policy's context, and the classifier
    reads word vectors. Models without a transformer stay on the CPU, where their kernels run.

    Args:
        pretrained: the requested transformer. gpu: name of the available GPU, or None.
        expected: what the transformer takes as classifier without a GPU.
        limit: of them, or None.
    """
    longest = _PATIENCE_S if limit is None else limit
    minutes = 0 if expected is None else max(1, round(expected.seconds / 60))
    if pretrained is not None and gpu is not None:
        return Choice("config", CLASSIFIER, f"there is a GPU: {gpu}"), [
            Choice("learner.device", "cuda", "learns and samples there"),
        ]
    if expected is not None and expected.seconds <= longest:
        why = f"the transformer reads the kept words: some {minutes} minutes on this machine"
        return Choice("config", CLASSIFIER, why), [
            Choice("learner.threads", expected.threads, "the fastest here"),
            Choice("batch_lengths", "similar", "less padding; every text keeps the same share"),
        ]
    kind = "own_pairs" if len(manifest.splits["train"].tokens) == 2 else "own"
    base = Choice("config", "own_long" if _is_long(manifest) else kind, _length(manifest))
    if pretrained is not None:
        why = f"as classifier the transformer would take some {minutes} minutes (--time allows it)"
        return base, [
            Choice("policy.reads", "contextual", why),
            Choice("policy.pretrained", pretrained, "it reads each text once"),
        ]
    idle = [] if gpu is None else [Choice("learner.device", "cpu", f"{gpu} is for --pretrained")]
    return base, idle


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _say_choices(shown: Console, chosen: Sequence[Choice]) -> None:
    table = Table.grid(padding=(0, 2))
    for choice in chosen:
        table.add_row(*map(escape, ("", f"{choice.key}={choice.value}", choice.why)))
    shown.print(table)


def _share(manifest: Manifest, keep: float | None) -> Choice:
    """The share of words to keep: as asked, or by the length of the texts."""
    if keep is not None:
        return Choice("reward.target_share", keep, "as asked")
    return Choice("reward.target_share", 0.2 if _is_long(manifest) else 0.4, _length(manifest))


def schedule(manifest: Manifest, base: str) -> list[Choice]:
    """Settings for a configuration of _EPOCHS that follow from the number and length of the texts.

    Batches are larger for many short texts. Each phase gets its number of epochs, scaled so that
    the total number of updates stays within bounds.
    """
    rows, dev = manifest.splits["train"].rows, manifest.splits["dev"].rows
    batch, epochs = 32 if rows < 5000 or base == CLASSIFIER else 64, _EPOCHS[base]
    if _is_long(manifest):
        batch = 16
    updates = sum(epochs.values()) * rows / batch
    fewest, most = UPDATES if base == CLASSIFIER else (_FEWEST, _MOST)
    bounded = min(max(updates, fewest), most)
    steps = [max(round(count * rows / batch * bounded / updates), 1) for count in epochs.values()]
    made = [Choice("batch_size", batch, f"{rows:,} {_length(manifest)}")]
    for number, (name, count) in enumerate(zip(epochs, steps, strict=True)):
        made.append(
            Choice(f"phases.{number}.steps", count, f"{name}: {count * batch / rows:.3g} epochs")
        )
    return [*made, Choice("evaluation.every", max(50, round(dev / batch)), "the best is kept")]


def _decays(base: str | Path, chosen: Sequence[Choice], overrides: Sequence[str]) -> list[Choice]:
    """Decay lengths of the learning rates: the configuration's whole multiple of all updates."""
    keys = ("learner.supervised.decay_updates", "learner.policy.decay_updates")
    shipped = load_config(find_config(base), [])
    without = settings(dict.fromkeys(keys))
    config = load_config(find_config(base), [*_as_settings(chosen), *without, *overrides])
    if config.updates is None or shipped.updates is None:
        return []
    falls = (shipped.learner.supervised.decay_updates, shipped.learner.policy.decay_updates)
    decays = []
    for key, of_shipped in zip(keys, falls, strict=True):
        times = max(1, round((of_shipped or 0) / shipped.updates))
        until = "the last update" if times == 1 else f"{times} times the updates of the run"
        decays.append(Choice(key, times * config.updates, f"until {until}"))
    return decays


def _not_overridden(chosen: Sequence[Choice], overrides: Sequence[str]) -> list[Choice]:
    """The choices whose key, or a section of it, no override sets."""
    keys = [f"{setting.partition('=')[0]}." for setting in overrides]
    return [choice for choice in chosen if not f"{choice.key}.".startswith(tuple(keys))]


def _as_settings(chosen: Sequence[Choice]) -> list[str]:
    return settings({choice.key: choice.value for choice in chosen})


def _words(manifest: Manifest) -> float:
    """Mean words per text; for pairs, of the longer side."""
    train = manifest.splits["train"]
    return max(tokens / train.rows for tokens in train.tokens)


def _is_long(manifest: Manifest) -> bool:
    return _words(manifest) >= _LONG_TEXT


def _length(manifest: Manifest) -> str:
    kind = "long" if _is_long(manifest) else "short"
    return f"{kind} texts, of {_words(manifest):,.0f} words"


def guess_task(files: Sequence[Path], label: str) -> str:
    """`score` if the labels are non-integer numbers, or too many different ones for classes.

    A column of categories or of yes and no holds classes, whatever they look like. Up to
    _MOST_CLASSES whole numbers are classes, and up to five times as many where each is the
    label of as many rows on average.
    """
    tables = [column_types(path) for path in files if file_kind(path) == "parquet"]
    if any(_names_classes(types.get(label)) for types in tables):
        return "classes"
    records = (record for path in files for record in read_records(path, columns=[label]))
    labels = (record.values.get(label) for record in records if isinstance(record, Record))
    seen = [str(v) for v in islice(labels, _LOOKED_AT) if v is not None and not is_missing(str(v))]
    try:
        numbers = {as_number(value) for value in seen}
    except ValueError:
        return "classes"
    each = len(seen) / max(1, len(numbers))
    most = _MOST_CLASSES * (5 if each >= _MOST_CLASSES else 1)
    whole = all(number.is_integer() for number in numbers)
    return "classes" if whole and len(numbers) <= most else "score"


def _names_classes(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_boolean(kind))


def _key(
    files: Mapping[str, Sequence[Path]],
    text: str,
    label: str,
    named: Sequence[str | Path],
    how: TableOptions,
) -> str:
    """A hash of everything that determines the prepared data: files, columns, settings.

    Raises:
        DataError: a file cannot be read or lacks a named column.
    """
    wanted = named_columns(text, label, how).all()
    for path in (path for paths in files.values() for path in paths):
        require_columns(path, column_names(path), wanted)
    vectors = [Path(path) for path in named]
    for path in vectors:
        check_vectors(path)
    read = {**files, "vectors": vectors}
    sums = {name: [source_file(path).sha256 for path in paths] for name, paths in read.items()}
    names = [path.name for path in files["rows"]]  # the ids of examples
    others = {key: value for key, value in how.items() if key not in ("vectors", "dev", "test")}
    others |= {"text": text, "label": label}
    content = json.dumps([SCHEMA_VERSION, sums, names, others], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _vectors(
    given: str | Path | Sequence[str | Path] | None, dim: int | None, pretrained: str | None
) -> tuple[Sequence[str | Path], Choice]:
    """The given vectors, else a transformer's of each word, else those of an installed package,
    else none; and the reason."""
    if given is not None or dim is not None:
        given = [given] if isinstance(given, str | Path) else given or ()
        named = ",".join(map(str, given))
        why = "as asked" if named else "learnt from these texts alone, as asked"
        return given, Choice("vectors", named or "none", why)
    if pretrained is not None:
        name = f"{ENCODER}{pretrained}"
        return [name], Choice("vectors", name, "the transformer reads each word alone")
    for package in filter(find_spec, PACKAGES):
        with suppress(DataError):  # this version has none, or a dependency is missing
            name = f"static:{package}"
            find_static(Path(name))
            return [name], Choice("vectors", name, "subword vectors of an installed package")
    return (), Choice(
        "vectors",
        "none",
        f"learnt from these texts alone; others: --vectors FILE, or pip install {PACKAGES[0]}",
    )
