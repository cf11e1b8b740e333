"""Figures beside those of a sweep's own runs: of papers, and of runs that are recorded."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pandas as pd

from rss_rl.errors import ConfigError, nearest
from rss_rl.metrics.measures import find_measure
from rss_rl.results.sweeps.spec import Spec

Published = Mapping[tuple[str, str], Mapping[str, float]]
"""Figures by dataset and model: NAME of a metric, and NAME_sd."""


def published(spec: Spec) -> Published:
    """The figures of the papers that a specification names.

    Raises:
        ConfigError: there is no such paper.
    """
    lines = pd.read_csv(Path(__file__).with_name("published.csv"))
    lines["paper"] += ", " + lines["page"]
    papers = list(lines["paper"].unique())
    for paper in spec.published:
        if paper not in papers:
            known = f"There are those of {'; '.join(papers)}"
            raise ConfigError(
                f"no '{paper}'{nearest(paper, papers)}", where="published", remedy=known
            )
    figures: dict[tuple[str, str], dict[str, float]] = {}
    for line in lines[lines["paper"].isin(spec.published)].itertuples():
        scale = 100 if find_measure(line.metric).percent else 1
        scores = {line.metric: line.value / scale, f"{line.metric}_sd": line.sd / scale}
        figures.setdefault((line.dataset, line.model), {}).update(scores)
    return figures


def recorded(spec: Spec) -> pd.DataFrame:
    """The lines of sweep.csv of an earlier sweep, of the datasets and rows of this one.

    Raises:
        ConfigError: the file that the specification names cannot be read.
    """
    if spec.recorded is None:
        return pd.DataFrame({"row": []})
    file = Path(spec.recorded)
    file = file if file.is_file() else Path(__file__).with_name(f"{spec.recorded}.csv")
    try:
        lines = pd.read_csv(file)
        ours = lines["row"].isin([*spec.rows]) & lines["dataset"].isin([*spec.datasets])
        return lines[ours & lines["mode"].notna()]
    except (OSError, KeyError, ValueError) as error:
        raise ConfigError(
            f"is no sweep.csv of a sweep ({error})",
            where=f"recorded: {file}",
            remedy="Give the file of one, or recorded=null to train all rows",
        ) from error
