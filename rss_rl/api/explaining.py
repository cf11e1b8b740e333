"""Which words does a classifier need? A policy that learns it over a whole corpus."""

from __future__ import annotations

__all__ = ["explain_classifier"]

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rss_rl.api.fitting import fit
from rss_rl.api.terminal import SafeConsole
from rss_rl.api.training import settings
from rss_rl.components import built_in_names, find_component
from rss_rl.errors import DataError

if TYPE_CHECKING:
    from rss_rl.api.run import Run

_UPDATES = 400
_AT_ONCE = 16


def explain_classifier(
    classifier: str | Path,
    texts: Sequence[str],
    *,
    keep: float = 0.2,
    time: str | float | None = None,
    out: str | Path = "runs/explained",
    overrides: Mapping[str, Any] | Sequence[str] = (),
    overwrite: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a policy that selects the words from which a classifier says what it says of a text.

    The classifier is frozen and asked for probabilities alone: the reward is its log-probability,
    given the selected words, of the class that it predicts from the whole text. Afterwards
    `run.model.select(texts)` marks the words of any text in one pass of the policy.

    Args:
        classifier: folder of an AutoModelForSequenceClassification with its tokenizer, or its name
            on the Hugging Face hub.
        texts: of the kind that are to be explained; some hundreds at least. They need no labels.
        keep: share of the words to select.
        time, out, overrides, overwrite, console: see `rss_rl.fit`.

    Raises:
        ConfigError: the classifier cannot be used. DataError: no texts, or all of one class.
        RssError: any other expected failure of a training.
    """
    shown = console or SafeConsole(highlight=False)
    with shown.status("asking the classifier"):
        said = _predicted(str(classifier), texts)
    if len(set(said)) < 2:
        raise DataError(
            f"the classifier says '{said[0]}' of every text" if said else "there is no text",
            where="texts",
            remedy="Give texts of which it says different things",
        )
    folder = str(Path(classifier).resolve()) if Path(classifier).is_dir() else str(classifier)
    reward = {"name": _explaining(), "options": {"pretrained": folder, "target": "label"}}
    chosen = {
        "reward.model": reward,
        "phases": [{"name": "explain", "policy": True, "steps": _UPDATES}],
        "evaluation.best_metric": "reward",
    }
    rows = [{"text": text, "said": name} for text, name in zip(texts, said, strict=True)]
    return fit(
        rows,
        text="text",
        label="said",
        keep=keep,
        time=time,
        out=out,
        overrides=[*settings(chosen), *settings(overrides)],
        overwrite=overwrite,
        console=shown,
    )


def _explaining() -> str:
    """The built-in reward model that scores with somebody's classifier."""
    names = built_in_names("reward_model")
    return next(n for n in names if find_component("reward_model", n).can("explains"))


def _predicted(classifier: str, texts: Sequence[str]) -> list[str]:
    """The name of the class that a classifier predicts of each text."""
    import torch

    from rss_rl.pretrained.folder import open_pretrained

    pretrained = open_pretrained(classifier)
    model: Any = pretrained.classifier()
    found: list[str] = []
    for start in range(0, len(texts), _AT_ONCE):
        given = pretrained.tokenizer(
            list(texts[start : start + _AT_ONCE]),
            truncation=True,
            max_length=pretrained.longest,
            padding=True,
            return_tensors="pt",
        )
        with torch.inference_mode():
            numbers = model(**given).logits.argmax(-1).tolist()
        found += [str(pretrained.config.id2label[number]) for number in numbers]
    return found
