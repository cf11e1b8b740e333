"""What `fit` makes of a table: prepared data, a configuration, and settings that fit them."""

from __future__ import annotations

import hashlib
import json
import math
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import suppress
from importlib.util import find_spec
from itertools import islice
from pathlib import Path
from time import monotonic
from typing import Any, Literal, NamedTuple, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
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
from rss_rl.api.planning import trust_in
from rss_rl.api.prepare import prepare
from rss_rl.api.rows import named_columns, split_files
from rss_rl.api.run import Run
from rss_rl.api.terminal import busy, counted, say
from rss_rl.config import (
    RunConfig,
    parse_config,
    read_tree,
    settings,
    trust_in_overrides,
    with_folders,
    with_overrides,
)
from rss_rl.data.checks import as_number, is_missing, joined_labels
from rss_rl.data.manifest import MANIFEST_FILE, SCHEMA_VERSION, Manifest
from rss_rl.data.pretrained_vectors import ENCODER, PACKAGES, find_static
from rss_rl.data.store import Prepared, open_prepared
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
from rss_rl.training.costs import measure_costs
from rss_rl.training.stopping import Costs, TimeBudget

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
_BATCH, _LARGEST = 32, 1024
"""Rows of an update: of a small table, and at most."""
_MEASURED = 64, 256
"""Rows of updates that are measured; what more rows cost follows from these."""
_LARGE = 100_000
"""Rows of a table beyond which dev and test are no larger: they are read again and again."""
_FEWEST, _MOST = 500, 6000
"""Bounds of the total updates: a small table needs dozens of epochs, a large one few. A transformer
needs fewer (UPDATES)."""
_DECAYS = ("learner.supervised.decay_updates", "learner.policy.decay_updates")
"""Settings of the updates over which the learning rates fall to 0."""
_TIMED = ("batch_size", "phases.")
"""Settings that change with the time there is."""
TRAINING = 0.85
"""Of what is left of a limit of time, for the training: the rest is for scores, the linear
classifier and the report."""
_PATIENCE_S = 1800.0
"""Without a limit of time, a transformer that takes longer than this is no classifier."""


class Default(NamedTuple):
    """A setting or option of `fit` that follows from the data, and why."""

    key: str
    value: Any
    reason: str


class Adapted(NamedTuple):
    """A configuration that fits a table.

    file       that it is based on
    settings   that differ from those of the file, but for the user's
    costs      of updates and evaluations, where they were measured
    all_words  the run that fine-tuned a transformer on all words, or None; if that was stopped, it
               is not finished, and the rest is not ready
    """

    config: RunConfig
    file: Path
    settings: dict[str, Any]
    costs: Costs | None = None
    all_words: Run | None = None


def run_name(data: Rows) -> str:
    """The name of the run: that of the file, if there is one."""
    first = data[0] if isinstance(data, list | tuple) and data else data
    return as_text(Path(first).stem) if isinstance(first, str | Path) else "own"


def adapt(
    data: Rows,
    text: str | int,
    label: str | int,
    overrides: Overrides,
    table: TableOptions,
    folder: Path,
    console: Console,
    *,
    keep: float | None = None,
    config: str | Path | None = None,
    pretrained: str | None = None,
    end: float = math.inf,
    runs: int = 1,
    begun: Mapping[str, Any] | None = None,
) -> Adapted:
    """Prepare a table, and choose a configuration and settings for it.

    A transformer that is to be the classifier is fine-tuned on all words here.

    Args:
        data, text, label, overrides, table, keep, config, pretrained: see `fit`.
        folder: where the prepared data are put. console: for what was chosen, and why.
        end: of the time for everything, by `time.monotonic`. runs: that share it.
        begun: settings of a run that is continued, with as many updates as it began with; empty:
            with all, and nothing is measured.

    Raises:
        RssError: any expected failure, in terms of the user's options.
    """
    _check(keep, config, pretrained)
    if table.get("text_b") is not None:
        table["text_b"] = str(table["text_b"])
    path, of_table = _prepared(data, str(text), str(label), table, pretrained, folder, console)
    manifest = open_prepared(path).manifest
    if joined := joined_labels(manifest.labels.names):
        say(console, f"Note: {joined}", "yellow")
    share, gpu = _share(manifest, keep), _gpu()
    expected = None
    if pretrained is not None and gpu is None:
        expected = expect(path, pretrained, share.value)
    longest = _PATIENCE_S if end == math.inf else end - monotonic()
    base, defaults = choose_encoder(manifest, pretrained, gpu, expected, longest)
    if config is not None:
        base, defaults = Default("config", config, "as asked"), []
    if config is None or keep is not None:
        defaults.append(share)
    if base.value in _EPOCHS:
        defaults += schedule(manifest, base.value)
    file, overrides = find_config(base.value), settings(overrides)
    defaults = _not_overridden(defaults, overrides)
    chosen: dict[str, Any] = {"data": str(path)}
    tunes = pretrained is not None and base.value == CLASSIFIER
    if tunes:
        chosen |= {"policy.pretrained": pretrained, "model.encoder.options.pretrained": pretrained}
    if base.value in _EPOCHS:  # those of the file end with its own number of updates
        chosen |= dict.fromkeys(_DECAYS)
    chosen |= {default.key: default.value for default in defaults}
    resolved = parse_config(
        with_overrides(with_overrides(read_tree(file), chosen), overrides),
        where=f"{file} or a KEY=VALUE setting",
        trust=trust_in(file) | trust_in_overrides(overrides),
    )
    if not tunes:
        _encode(path, resolved, console)
    costs = None
    if base.value in _EPOCHS:
        # A phase may also be named in a setting of the user's.
        defaults = [d for d in defaults if _value(resolved, d.key) == d.value]
        timed = [default for default in defaults if default.key.startswith(_TIMED)]
        if begun is not None:
            resolved = _as_begun(resolved, timed, begun)
        elif base.value != CLASSIFIER:
            seconds = TRAINING * (end - monotonic()) / runs
            with busy(console, "measuring how long updates take"):
                resolved, costs = within(resolved, open_prepared(path), timed, seconds)
        decays = _not_overridden(_decays(base.value, resolved.updates), overrides)
        for default in decays:
            resolved = _replaced(resolved, default.key, default.value)
        rows = manifest.splits["train"].rows
        defaults = [_as_timed(default, resolved, rows) for default in defaults] + decays
        chosen |= {default.key: default.value for default in defaults}
    _say_defaults(console, [*of_table, base, *defaults])
    if config is None and pretrained is None and (cached := cached_transformer()):
        say(console, f"At hand: --pretrained {cached}. {_GAIN}", "dim")
    all_words = None
    if pretrained is not None and tunes:
        all_words = fine_tune(path, pretrained, resolved, end, console)
        if all_words.finished:
            tuned = tuned_encoder(all_words)
            resolved = with_folders(resolved, lambda name: tuned if name == pretrained else name)
            chosen |= {"policy.pretrained": tuned, "model.encoder.options.pretrained": tuned}
            _encode(path, resolved, console)
    return Adapted(resolved, file, chosen, costs, all_words)


def _check(keep: float | None, config: str | Path | None, pretrained: str | None) -> None:
    """Refuse options that cannot be, or that contradict each other."""
    if keep is not None and not (isinstance(keep, int | float) and 0 < keep < 1):
        raise ConfigError(
            f"{keep!r:.40} is not a share of the words between 0 and 1",
            where="keep (--keep)",
            remedy="Give one, such as 0.3",
        )
    if config is not None and pretrained is not None:
        raise ConfigError(
            "a transformer determines the configuration",
            where="pretrained (--pretrained)",
            remedy="Leave config (--config) out, or set the transformer there:"
            " policy.pretrained or model.encoder.options.pretrained",
        )


def _prepared(
    data: Rows,
    text: str,
    label: str,
    table: TableOptions,
    pretrained: str | None,
    folder: Path,
    console: Console,
) -> tuple[Path, list[Default]]:
    """The folder of the prepared table, and what was chosen for it."""
    with tempfile.TemporaryDirectory(prefix="rss-rl-rows-") as scratch:
        splits = {"rows": data, "dev": table.get("dev"), "test": table.get("test")}
        files = split_files(splits, Path(scratch), named_columns(text, label, table).all())
        table |= {"dev": files.get("dev"), "test": files.get("test")}
        table["vectors"], vectors = _vectors(table.get("vectors"), table.get("dim"), pretrained)
        if "split" not in table and (rows := _count_rows(files["rows"])) > _LARGE:
            share = _LARGE / 10 / rows
            table["split"] = [1 - 2 * share, share, share]
        single = table.get("text_b") is None
        reason = "single texts" if single else "pairs of texts"
        reason = "as asked" if "label_weights" in table else reason
        weights = Default(
            "label_weights", str(table.setdefault("label_weights", single)).lower(), reason
        )
        path = folder / f"{run_name(data)}-data-{_key(files, text, label, table)}"
        reason = "as asked" if table.get("task") else "from the labels; --task says otherwise"
        table["task"] = task = table.get("task") or guess_task(files["rows"], label)
        there = (path / MANIFEST_FILE).is_file()
        if not there:
            try:
                with counted(console, "preparing the data") as progress:
                    prepare(
                        files["rows"], out=path, text=text, label=label, progress=progress, **table
                    )
            except DataError:
                # Another call with the same table may have been faster.
                there = (path / MANIFEST_FILE).is_file()
                if not there:
                    raise
    bad = sum(info.bad_rows for info in open_prepared(path).manifest.splits.values())
    more = f", bad rows left out: {bad:,}, see rejects.jsonl there" if bad else ""
    say(console, f"Data: {path}{', already prepared' if there else ''}{more}")
    return path, [Default("task", task, reason), vectors, weights]


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
    longest: float = _PATIENCE_S,
) -> tuple[Default, list[Default]]:
    """The configuration for text length and hardware, and settings that belong to it.

    A transformer is the classifier on a GPU, and where there is time for that. Else it
    encodes each text once before training: its states are the policy's context, and the classifier
    reads word vectors. Models without a transformer stay on the CPU, where their kernels run.

    Args:
        pretrained: the requested transformer. gpu: name of the available GPU, or None.
        expected: what the transformer takes as classifier without a GPU.
        longest: time for that, in seconds.
    """
    minutes = 0 if expected is None else max(1, round(expected.seconds / 60))
    if pretrained is not None and gpu is not None:
        return Default("config", CLASSIFIER, f"there is a GPU: {gpu}"), [
            Default("learner.device", "cuda", "learns and samples there"),
        ]
    if expected is not None and expected.seconds <= longest:
        reason = f"the transformer reads the kept words: some {minutes} minutes on this machine"
        return Default("config", CLASSIFIER, reason), [
            Default("learner.threads", expected.threads, "the fastest here"),
            Default("batch_lengths", "similar", "less padding; every text keeps the same share"),
        ]
    kind = "own_pairs" if len(manifest.splits["train"].tokens) == 2 else "own"
    base = Default("config", "own_long" if _is_long(manifest) else kind, _length(manifest))
    if pretrained is not None:
        reason = f"as classifier it would take some {minutes} minutes (--time allows it)"
        return base, [
            Default("policy.reads", "contextual", reason),
            Default("policy.pretrained", pretrained, "it reads each text once"),
        ]
    idle = [] if gpu is None else [Default("learner.device", "cpu", f"{gpu} is for --pretrained")]
    return base, idle


def _gpu() -> str | None:
    import torch

    return torch.cuda.get_device_name() if torch.cuda.is_available() else None


def _say_defaults(console: Console, defaults: Sequence[Default]) -> None:
    table = Table.grid(padding=(0, 2))
    for default in defaults:
        table.add_row(*map(escape, ("", f"{default.key}={default.value}", default.reason)))
    console.print(table)


def _share(manifest: Manifest, keep: float | None) -> Default:
    """The share of words to keep: as asked, or by the length of the texts."""
    if keep is not None:
        return Default("reward.target_share", keep, "as asked")
    return Default("reward.target_share", 0.2 if _is_long(manifest) else 0.4, _length(manifest))


def schedule(manifest: Manifest, base: str) -> list[Default]:
    """Settings for a configuration of _EPOCHS that follow from the number and length of the texts.

    Each phase gets its number of epochs, scaled so that the total number of updates stays within
    bounds. Batches are larger for many short texts, and grow with the table, so that each phase
    reads every row.
    """
    rows, dev = manifest.splits["train"].rows, manifest.splits["dev"].rows
    batch, epochs = _BATCH if rows < 5000 or base == CLASSIFIER else 2 * _BATCH, _EPOCHS[base]
    if _is_long(manifest):
        batch = _BATCH // 2
    fewest, most = UPDATES if base == CLASSIFIER else (_FEWEST, _MOST)
    part = min(epochs.values()) / sum(epochs.values())
    while base != CLASSIFIER and batch < _LARGEST and part * most * batch < rows:
        batch *= 2
    updates = sum(epochs.values()) * rows / batch
    scale = min(max(updates, fewest), most) / updates
    steps = [max(round(count * rows / batch * scale), 1) for count in epochs.values()]
    return [
        Default("batch_size", batch, f"{rows:,} {_length(manifest)}"),
        *(
            Default(f"phases.{number}.steps", count, f"{name}: {count * batch / rows:.3g} epochs")
            for number, (name, count) in enumerate(zip(epochs, steps, strict=True))
        ),
        Default("evaluation.every", max(50, round(dev / batch)), "the best is kept"),
    ]


def _decays(base: str | Path, updates: int | None) -> list[Default]:
    """Learning rates that fall until the last update; of pairs, the policy's by half.

    Word vectors move until then: a policy that reads them and stands still would lose the share.
    """
    if updates is None:
        return []
    times = 2 if base == "own_pairs" else 1
    reason = "until the last update"
    return [
        Default(_DECAYS[0], updates, reason),
        Default(_DECAYS[1], times * updates, reason if times == 1 else f"twice {updates} updates"),
    ]


def within(
    config: RunConfig, prepared: Prepared, timed: Sequence[Default], seconds: float
) -> tuple[RunConfig, Costs | None]:
    """The configuration with as many updates as there is time for, and what updates cost.

    Before there are fewer updates, each reads fewer rows, though not fewer than of a small table.

    Args:
        timed: the settings that may be changed: batch size and updates. seconds: for the run.
    """
    keys, batch = [default.key for default in timed], config.batch_size
    sizes = sorted({min(batch, size) for size in _MEASURED})
    measured = measure_costs(config, prepared, sizes)
    if measured is None:
        return config, None

    def costs_of(size: int) -> Costs:
        """On a line through those that were measured."""
        first, last = (np.array(measured[place].updates) for place in (0, -1))
        slope = (last - first) / max(1, sizes[-1] - sizes[0])
        updates = np.maximum(first + (size - sizes[0]) * slope, first / 2)
        return Costs(updates.tolist(), measured[0].evaluation)

    while True:
        costs = costs_of(batch)
        budget = TimeBudget(config, costs=costs)
        part = (seconds - budget.fixed_s()) / budget.updates_s
        if part >= 1 or "batch_size" not in keys or batch // 2 < _BATCH:
            break
        batch //= 2
    config = config.model_copy(update={"batch_size": batch})
    if part < 1:
        for key in (key for key in keys if key != "batch_size"):
            config = _replaced(config, key, max(1, int(part * _value(config, key))))
    return config, costs


def _as_timed(default: Default, config: RunConfig, rows: int) -> Default:
    """A default with the value that a configuration has for it, which may be less."""
    value = _value(config, default.key)
    if value == default.value or not default.key.endswith(".steps"):
        return default._replace(value=value)
    epochs = value * config.batch_size / rows
    return default._replace(value=value, reason=f"{default.reason}, --time allows {epochs:.3g}")


def _as_begun(config: RunConfig, timed: Sequence[Default], begun: Mapping[str, Any]) -> RunConfig:
    """With the batch size and updates of a run that is continued: another time has others."""
    for default in timed:
        config = _replaced(config, default.key, _value(begun, default.key) or default.value)
    return config


def _value(section: Any, key: str) -> Any:
    """What a section or tree has under a dotted key; None where it has none."""
    for name in key.split("."):
        if isinstance(section, tuple | list):
            section = dict(enumerate(section)).get(int(name))
        elif isinstance(section, Mapping):
            section = section.get(name)
        else:
            section = getattr(section, name, None)
    return section


def _replaced(section: Any, key: str, value: Any) -> Any:
    """The section with another value, which must be valid there, under a dotted key."""
    name, _, rest = key.partition(".")
    if isinstance(section, tuple):
        number = int(name)
        return (*section[:number], _replaced(section[number], rest, value), *section[number + 1 :])
    value = _replaced(getattr(section, name), rest, value) if rest else value
    return section.model_copy(update={name: value})


def _not_overridden(defaults: Sequence[Default], overrides: Sequence[str]) -> list[Default]:
    """The defaults whose key, or a section of it, no override sets."""
    keys = tuple(f"{override.partition('=')[0]}." for override in overrides)
    return [default for default in defaults if not f"{default.key}.".startswith(keys)]


def _words(manifest: Manifest) -> float:
    """Mean words per text; for pairs, of the longer side."""
    train = manifest.splits["train"]
    return max(tokens / train.rows for tokens in train.tokens)


def _is_long(manifest: Manifest) -> bool:
    return _words(manifest) >= _LONG_TEXT


def _length(manifest: Manifest) -> str:
    kind = "long" if _is_long(manifest) else "short"
    return f"{kind} texts, of {_words(manifest):,.0f} words"


def guess_task(files: Sequence[Path], label: str) -> Literal["classes", "score"]:
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
    integers = all(number.is_integer() for number in numbers)
    return "classes" if integers and len(numbers) <= most else "score"


def _count_rows(files: Sequence[Path]) -> float:
    """Rows of files, estimated from the size of the first ones where that is not known."""
    rows = 0.0
    with suppress(OSError, pa.ArrowException):  # said when it is read
        for path in files:
            if file_kind(path) == "parquet":
                rows += pq.ParquetFile(path).metadata.num_rows
                continue
            with path.open("rb") as file:
                lines = [*map(len, islice(file, _LOOKED_AT))]
            rows += len(lines) * path.stat().st_size / max(1, sum(lines))
    return rows


def _names_classes(kind: pa.DataType | None) -> bool:
    return kind is not None and (pa.types.is_dictionary(kind) or pa.types.is_boolean(kind))


def _key(files: Mapping[str, Sequence[Path]], text: str, label: str, table: TableOptions) -> str:
    """A hash of everything that determines the prepared data: files, columns, settings.

    Raises:
        DataError: a file cannot be read or lacks a named column.
    """
    wanted = named_columns(text, label, table).all()
    for path in (path for paths in files.values() for path in paths):
        require_columns(path, column_names(path), wanted)
    vectors = [*map(Path, cast(Sequence[Path], table["vectors"]))]
    for path in vectors:
        check_vectors(path)
    read = {**files, "vectors": vectors}
    sums = {name: [source_file(path).sha256 for path in paths] for name, paths in read.items()}
    names = [path.name for path in files["rows"]]  # the ids of examples
    others = {key: value for key, value in table.items() if key not in ("vectors", "dev", "test")}
    others |= {"text": text, "label": label}
    content = json.dumps([SCHEMA_VERSION, sums, names, others], sort_keys=True, default=str)
    return hashlib.sha256(content.encode()).hexdigest()[:8]


def _vectors(
    files: str | Path | Sequence[str | Path] | None, dim: int | None, pretrained: str | None
) -> tuple[Sequence[str | Path], Default]:
    """The vectors asked for, else a transformer's of each word, else those of an installed package,
    else none; and the reason."""
    if files is not None or dim is not None:
        files = [files] if isinstance(files, str | Path) else files or ()
        named = ",".join(map(str, files))
        reason = "as asked" if named else "learnt from these texts alone, as asked"
        return files, Default("vectors", named or "none", reason)
    if pretrained is not None:
        name = f"{ENCODER}{pretrained}"
        return [name], Default("vectors", name, "the transformer reads each word alone")
    for package in filter(find_spec, PACKAGES):
        with suppress(DataError):  # this version has none, or a dependency is missing
            name = f"static:{package}"
            find_static(Path(name))
            return [name], Default("vectors", name, "subword vectors of an installed package")
    return (), Default(
        "vectors",
        "none",
        f"learnt from these texts alone; others: --vectors FILE, or pip install {PACKAGES[0]}",
    )
