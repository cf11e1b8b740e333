"""The specification of a sweep: which runs are made, and what they are compared with.

A YAML file, or a mapping of the same form:

    base: sick                                  # a configuration, a run's folder, or a table
    settings: {evaluation.all_tokens: false}    # of all runs
    datasets:
      sick: {source: sick-relatedness, folder: sick, vectors: [glove.txt.gz]}
    rows:
      resan: {label: ReSAN}
      mean: {settings: {model.encoder: mean}, axes: {}}
    axes:
      reward.target_share: [0.1, 0.3]
    seeds: 3

Every row is trained on every dataset, at every combination of the values of the axes, with every
seed. Settings are merged in this order, the last wins: base, `settings`, dataset, row, row on that
dataset, axes.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field, model_validator

from rss_rl.config import Section, parse_section, parse_value, read_tree, with_overrides
from rss_rl.errors import ConfigError, nearest

Settings = Mapping[str, Any]
"""Values by dotted key of a configuration, as KEY=VALUE sets them."""
_Names = Annotated[tuple[str, ...], Field(strict=False)]
_Seeds = int | Annotated[tuple[int, ...], Field(strict=False)]
_Axes = Mapping[str, Annotated[tuple[Any, ...], Field(strict=False, min_length=1)]]
_Name = Annotated[str, Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.-]{0,60}$")]
_OWN = {
    "seed": "Give seeds",
    "sampler.backend": "A run has its sampler in one process; --jobs trains several runs",
    "learner.actors": "A run has its learner in one process; --jobs trains several runs",
}
"""Settings that a sweep makes itself."""
_PARTS = ("rows", "datasets")


class Dataset(Section):
    """Data that rows are trained on.

    label     for headings; default its name
    data      a prepared directory; or `source, folder, options, vectors, dim`, as of
              `rss-rl data prepare`: then the data are prepared when first needed
    table     in place of a source, the arguments of `rss_rl.prepare`: data, text, label, ...
    folds     of cross-validation: the source has the options fold and folds
    base      instead of the sweep's. seeds: at most. settings: of all runs on it
    """

    label: str = ""
    data: str | None = None
    source: str | None = None
    folder: str | None = None
    options: Mapping[str, str | int | float | bool] = Field(default={})
    table: Mapping[str, Any] | None = None
    vectors: _Names | None = None
    dim: int = Field(default=100, ge=1)
    folds: int | None = Field(default=None, ge=2)
    base: str | None = None
    seeds: _Seeds | None = None
    settings: Settings = Field(default={})

    @model_validator(mode="after")
    def _comes_from_somewhere(self) -> Dataset:
        if [self.source, self.data, self.table].count(None) != 2:
            raise ValueError("give one of source, table and data")
        if self.table is not None and not {"data", "text", "label"} <= {*self.table}:
            raise ValueError("a table has data, text and label")
        return self


class Row(Section):
    """One thing that is compared with others: a model, a policy.

    label     as shown; default its name. seeds: at most
    settings  on all datasets; settings_on: by dataset
    axes      instead of the sweep's; {}: none
    also      labels of further selection modes of its runs, by mode: random, weights, linear
    """

    label: str = ""
    seeds: _Seeds | None = None
    settings: Settings = Field(default={})
    settings_on: Mapping[str, Settings] = Field(default={})
    axes: _Axes | None = None
    also: Mapping[str, str] = Field(default={})


class Spec(Section):
    """A sweep.

    title, note  of its table
    base         name or file of a configuration; folder of a run; or the arguments of `rss_rl.fit`
    metrics      columns; default those that the runs have
    split        whose scores are shown
    seeds        a number of seeds, from 0; or a list of them
    root         folder that datasets' folders and files of vectors are relative to
    vectors      files of word vectors of datasets that name none
    published    papers whose figures stand beside, as in published.csv of this folder
    recorded     the sweep.csv of an earlier sweep, a file or the name of one in this folder; its
                 rows are shown and not trained
    ranked       measures by which rows are ranked over datasets
    judged       whether the kept words decide is looked at, see `rss_rl.results.trojan`, and the
                 weights of a run are deleted then
    """

    title: str = ""
    note: str = ""
    base: str | Mapping[str, Any]
    settings: Settings = Field(default={})
    metrics: _Names = ()
    split: Literal["test", "dev"] = "test"
    datasets: Mapping[_Name, Dataset] = Field(default={})
    rows: Mapping[_Name, Row] = Field(default={})
    axes: _Axes = Field(default={})
    seeds: _Seeds = 3
    root: str = ""
    vectors: _Names = ()
    published: _Names = ()
    recorded: str | None = None
    ranked: _Names = ()
    judged: bool = False

    @model_validator(mode="after")
    def _fits_together(self) -> Spec:
        for name, row in self.rows.items():
            for dataset in row.settings_on:
                if dataset not in self.datasets:
                    hint = nearest(dataset, list(self.datasets))
                    raise ValueError(f"rows.{name}.settings_on: no dataset '{dataset}'{hint}")
        parts: list[Spec | Dataset | Row] = [self, *self.datasets.values(), *self.rows.values()]
        settings = [part.settings for part in parts] + [
            row.axes or {} for row in self.rows.values()
        ]
        settings += [each for row in self.rows.values() for each in row.settings_on.values()]
        refused = _OWN | ({"data": "Give datasets"} if self.datasets else {})
        for key in [key for keys in [*settings, self.axes] for key in keys]:
            _refuse(key, refused)
        for key in {*self.axes} & {*self.settings}:
            raise ValueError(f"{key} is an axis: give axes.{key}=[VALUE, ...] for other values")
        return self


def _refuse(key: str, refused: Mapping[str, str]) -> None:
    for fixed, remedy in refused.items():
        if f"{key}.".startswith(f"{fixed}."):
            raise ValueError(f"{key} is not set in a sweep. {remedy}")


def load_spec(spec: Path | Mapping[str, Any], overrides: Sequence[str] = ()) -> Spec:
    """Read a specification, and apply KEY=VALUE.

    A key of the specification changes it (`seeds=2`, `axes.reward.target_share=[0.1,0.2]`,
    `rows=resan,mean` for these rows alone), any other stands under `settings`.

    Raises:
        ConfigError: naming the file, the key and the nearest known one.
    """
    where = str(spec) if isinstance(spec, Path) else "sweep"
    tree = read_tree(spec) if isinstance(spec, Path) else copy.deepcopy(dict(spec))
    picked: dict[str, list[str]] = {}
    for override in overrides:
        key, equals, text = override.partition("=")
        part, _, rest = key.partition(".")
        if part not in Spec.model_fields:
            part, rest = "settings", key
        name, _, of_part = rest.partition(".settings.")
        if key in _PARTS:
            picked[key] = text.strip("[]").split(",")
        elif part in ("axes", "settings") and rest and equals:
            tree[part] = {**(tree.get(part) or {}), rest: parse_value(text, where=override)}
        elif part in _PARTS and of_part and equals:
            entry = tree.setdefault(part, {}).setdefault(name, {})
            value = {of_part: parse_value(text, where=override)}
            entry["settings"] = {**(entry.get("settings") or {}), **value}
        else:
            tree = with_overrides(tree, [override])
    parsed = parse_section(Spec, tree, where=where)
    return parsed.model_copy(update={k: _picked(parsed, k, names) for k, names in picked.items()})


def _picked(spec: Spec, part: str, names: Sequence[str]) -> dict[str, Any]:
    """The named rows or datasets."""
    entries: Mapping[str, Any] = getattr(spec, part)
    for name in names:
        if name not in entries:
            what = f"no '{name}'{nearest(name, list(entries))}"
            raise ConfigError(what, where=part, remedy=f"There are {', '.join(entries)}")
    return {name: entries[name] for name in entries if name in names}
