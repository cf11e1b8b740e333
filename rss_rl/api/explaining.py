"""Explaining a classifier: by a policy trained on a corpus, or by its gradient alone."""

from __future__ import annotations

import inspect
import string
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from rich.console import Console

from rss_rl.api.fitting import check_share, fit
from rss_rl.api.terminal import SafeConsole, counted
from rss_rl.api.training import settings
from rss_rl.components import built_in_names, find_component, imported
from rss_rl.errors import ConfigError, DataError

if TYPE_CHECKING:
    from rss_rl.api.run import Run
    from rss_rl.data.sources import Text
    from rss_rl.inference.explanation import Explanation
    from rss_rl.reward_models.blackbox import Probabilities

_THROUGH_GATES = "transformer/explain"
"""The configuration for a differentiable classifier."""
_UPDATES = 400
_SELECTIONS = 4
"""For a policy that learns only from a function's probabilities."""
_AT_ONCE = 16

_Progress = Callable[[int, int], None]
"""Called with the number of texts classified, and of how many."""


def explain_classifier(
    classifier: str | Path | Probabilities,
    texts: Sequence[str],
    *,
    keep: float = 0.2,
    of_class: str | None = None,
    time: str | float | None = None,
    out: str | Path = "runs/explained",
    vectors: str | Path | Sequence[str | Path] | None = None,
    contextual: bool = False,
    overrides: Mapping[str, Any] | Sequence[str] = (),
    overwrite: bool = False,
    console: Console | None = None,
) -> Run:
    """Train a policy that selects the words on which a classifier bases its predictions.

    The classifier is frozen: the reward is its log-probability, given the selected words, of the
    class that it predicts from the whole text. From a transformer the policy learns through gates
    on its attention, from a function only by its probabilities. Afterwards
    `run.model.select(texts)` marks the words of any text in one pass of the policy.

    Args:
        classifier: folder of an AutoModelForSequenceClassification with its tokenizer, its name
            on the Hugging Face hub, or a module-level function from a list of texts to class
            probabilities, [texts, classes]; also as `package.module:FUNCTION`. A function gets
            texts as words joined by spaces, and may name its classes in an attribute `classes`.
        texts: of the kind to be explained, at least a few hundred. They need no labels.
        keep: share of the words to select.
        of_class: a class of the classifier: select the words that speak for it in every text,
            instead of those that speak for the predicted class.
        vectors: files of word vectors as input of the policy, see `rss_rl.prepare`.
        contextual: the policy also reads the states of the classifier's encoder for each word in
            its whole text, at the cost of one forward pass per text.
        time, out, overrides, overwrite, console: see `rss_rl.fit`.

    Raises:
        ConfigError: the classifier or `keep` cannot be used. DataError: no texts, or one class.
        RssError: any other expected failure of training.
    """
    check_share(keep)
    shown = console or SafeConsole(highlight=False)
    with counted(shown, "running the classifier") as progress:
        name, options, said = _classify(classifier, list(texts), progress)
    pretrained = options.get("pretrained")
    if len(set(said)) < 2:
        raise DataError(
            f"the classifier predicts '{said[0]}' for every text" if said else "there is no text",
            where="texts",
            remedy="Give texts for which it predicts different classes",
        )
    chosen: dict[str, Any] = {
        "reward.model": {
            "name": name,
            "options": {**options, "target": "label", "of_class": of_class},
        },
    }
    config = None
    if pretrained is not None:
        config = _THROUGH_GATES
    else:
        chosen |= {
            "phases": [{"name": "explain", "policy": True, "steps": _UPDATES}],
            "evaluation.best_metric": "reward",
            "evaluation.every": _UPDATES // 8,
            "sampler.selections": _SELECTIONS,
        }
    if contextual:
        if pretrained is None:
            raise ConfigError(
                "the classifier is a function, which has no encoder",
                where="contextual",
                remedy="Leave contextual out, or give a transformer's folder",
            )
        chosen |= {"policy.reads": "contextual", "policy.pretrained": pretrained}
    rows = [{"text": text, "said": name} for text, name in zip(texts, said, strict=True)]
    return fit(
        rows,
        text="text",
        label="said",
        keep=keep,
        config=config,
        time=time,
        out=out,
        overrides=[*settings(chosen), *settings(overrides)],
        # The classifier is asked about words as they are written, unless it cannot tell.
        prepared={"vectors": vectors, "lower": pretrained is not None and _is_uncased(pretrained)},
        overwrite=overwrite,
        console=shown,
    )


def mark_words(
    classifier: str | Path,
    texts: Sequence[Text],
    *,
    keep: float = 0.2,
    of_class: str | None = None,
) -> list[Explanation]:
    """The words on which a transformer bases its prediction, at once: nothing is trained.

    Each word is worth the slope of the log-odds of the class in the word's weight in attention, in
    the upper two thirds of the layers. It costs some two forward passes per text. Words beyond the
    classifier's maximum length are not read, and not marked. The classifier is opened in each call:
    give all texts together.

    Args:
        classifier: folder of an AutoModelForSequenceClassification with its tokenizer, or its name
            on the Hugging Face hub.
        texts: each a text, or a tuple of words, which is not tokenised.
        keep: share of the words read to mark, at least one of a text.
        of_class: the class for which marked words speak; None: the one predicted from the whole
            text.

    Returns:
        Explanations whose prediction is that class, with the probabilities of the classes from the
        marked words alone.

    Raises:
        ConfigError: the classifier, its attention, the class or `keep` cannot be used.
        DataError: a text without words, or something that is not a text.
    """
    from rss_rl.inference.gradient import GradientExplainer

    check_share(keep)
    return GradientExplainer(classifier)(texts, keep, of_class)


def _classify(
    classifier: str | Path | Probabilities, texts: list[str], progress: _Progress
) -> tuple[str, dict[str, str], list[str]]:
    """The reward model for a classifier, its options, and the predicted class of each text."""
    if callable(classifier):
        names = (getattr(classifier, key, "") for key in ("__module__", "__qualname__"))
        named = ":".join(map(str, names))
        if not inspect.isfunction(classifier) or not _is_found(classifier, named):
            raise ConfigError(
                f"other processes cannot find {classifier!r:.100} by its name",
                where="classifier",
                remedy="Give a function defined at the top level of a module, not of a script"
                " or notebook; it may wrap your own",
            )
        return named, {}, _function_classes(classifier, texts, named, progress)
    named = str(classifier)
    if ":" in named and not Path(named).exists():
        function = imported(named)
        if not inspect.isfunction(function):
            raise ConfigError(
                f"is {type(function).__name__}, not a function",
                where=named,
                remedy="Write a function in that module that calls it",
            )
        return named, {}, _function_classes(function, texts, named, progress)
    folder = str(Path(named).resolve()) if Path(named).is_dir() else named
    return _blackbox_reward(), {"pretrained": folder}, _transformer_classes(named, texts, progress)


def _is_found(function: Probabilities, named: str) -> bool:
    module, _, name = named.partition(":")
    if module == "__main__" or "<" in name:
        return False
    try:
        return imported(named) is function
    except ConfigError:
        return False


def _function_classes(
    function: Probabilities, texts: list[str], where: str, progress: _Progress
) -> list[str]:
    """The class that a function predicts for each text, by name or else by number."""
    from rss_rl.reward_models.blackbox import ask

    names = getattr(function, "classes", None)
    found: list[str] = []
    for start in range(0, len(texts), _AT_ONCE):
        numbers = ask(function, texts[start : start + _AT_ONCE], where).argmax(-1).tolist()
        found += [str(number if names is None else names[number]) for number in numbers]
        progress(len(found), len(texts))
    return found


def _blackbox_reward() -> str:
    """The built-in reward model for external classifiers."""
    names = built_in_names("reward_model")
    return next(n for n in names if find_component("reward_model", n).can("explains"))


def _transformer_classes(classifier: str, texts: Sequence[str], progress: _Progress) -> list[str]:
    """The name of the class that a transformer predicts for each text."""
    import torch

    from rss_rl.pretrained.folder import open_pretrained
    from rss_rl.reward_models.blackbox import without_batches

    pretrained = open_pretrained(classifier)
    model: Any = pretrained.classifier()
    found: list[str] = []
    for start in range(0, len(texts), _AT_ONCE):
        try:
            given = pretrained.tokenizer(
                list(texts[start : start + _AT_ONCE]),
                truncation=True,
                max_length=pretrained.longest,
                padding=True,
                return_tensors="pt",
            )
            with torch.inference_mode():
                numbers = model(**given).logits.argmax(-1).tolist()
        except ValueError as error:
            raise without_batches(classifier, error) from error
        found += [str(pretrained.config.id2label[number]) for number in numbers]
        progress(len(found), len(texts))
    return found


def _is_uncased(classifier: str) -> bool:
    """Whether a transformer's tokenizer makes the same of capital letters as of small ones."""
    from rss_rl.pretrained.folder import open_pretrained

    tokenizer = open_pretrained(classifier).tokenizer
    capitals = " ".join(string.ascii_uppercase)
    return bool(tokenizer(capitals)["input_ids"] == tokenizer(capitals.lower())["input_ids"])
