"""Plot of the agreement with people: token F1 against the share of words kept."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from rss_rl.ops.rationale_overlap import BUDGETS
from rss_rl.results import output
from rss_rl.results.agreement import CHOICES, f1_at
from rss_rl.results.comparing import Group
from rss_rl.results.summary import spread

Agreement = Mapping[str, Mapping[str, float]]
"""Measures of a run by selection, see `rss_rl.results.agreement.Tally.metrics`."""
_OWN, _RANKED, _RANDOM = CHOICES


def draw_agreement(found: Mapping[Path, Agreement], groups: Sequence[Group], split: str) -> bytes:
    """A PNG with a line for each ranking of the words, and a point for the policy's own selection.

    Lines run over the best 5, 10, ..., 95% of each text's words; several seeds as mean ± one
    standard deviation. The random words are those of the first group.

    Args:
        found: measures of each run. groups: runs that differ only in the seed. split: for the
            title.
    """
    figure, (axes,) = output.panels(1, 1, (6.4, 4.4))
    axes.set_title(f"Agreement with people, {split}", fontsize=11)
    axes.set_xlabel("words kept, %")
    axes.set_ylabel("token F1")
    shares, drawn = 100 * np.array(BUDGETS), 0
    for group in groups:
        runs = [found[run.path] for run in group.runs]
        policy = group.runs[0].config["policy"]["name"]
        before = f"{group.name}: " if len(groups) > 1 else ""
        for selection in runs[0]:
            if selection == _RANKED or (selection == _RANDOM and group is not groups[0]):
                continue  # top-k ranks the words as the policy does
            values = np.array([[run[selection][f1_at(share)] for share in BUDGETS] for run in runs])
            mean, colour = values.mean(0), output.COLOURS[drawn % len(output.COLOURS)]
            drawn += 1
            if selection == _RANDOM:
                axes.plot(shares, mean, color="0.5", linestyle="--", label=_RANDOM)
                continue
            name = policy if selection == _OWN else selection
            axes.plot(shares, mean, color=colour, label=before + name)
            if len(runs) > 1:
                around = values.std(0, ddof=1)
                axes.fill_between(shares, mean - around, mean + around, color=colour, alpha=0.2)
            if selection == _OWN:
                kept, own = (
                    spread([run[_OWN][measure] for run in runs]) for measure in ("kept", "token_f1")
                )
                axes.errorbar(
                    [100 * kept.mean],
                    [own.mean],
                    xerr=output.whiskers([kept.deviation], 100),
                    yerr=output.whiskers([own.deviation]),
                    fmt="o",
                    capsize=2.5,
                    color=colour,
                )
    axes.grid(color="0.9")
    axes.set_axisbelow(True)
    axes.legend(fontsize=9)
    return output.png(figure)
