"""A policy that explains somebody's classifier, from texts alone."""

from __future__ import annotations

import functools
import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from transformers import AutoModelForSequenceClassification
from typer.testing import CliRunner

import rss_rl
from rss_rl.api.terminal import SafeConsole
from rss_rl.cli.main import app
from rss_rl.data.store import open_prepared
from rss_rl.errors import ComponentError, ConfigError, DataError
from rss_rl.reward_models.blackbox import of_function
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.types import Batch, LabelSpec


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A classifier with random weights, whose classes are called `calm` and `loud`."""
    place = tmp_path_factory.mktemp("tiny") / "classifier"
    tiny_transformers.save(
        place, classes=2, id2label={0: "calm", 1: "loud"}, max_position_embeddings=128
    )
    return place


def balanced(folder: Path, texts: list[str], tokenizer: Any = None) -> None:
    """Move the classifier's bias so that it says either class of half of the texts."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    tokenizer = tokenizer or tiny_transformers.tokenizer()
    with torch.no_grad():
        logits = torch.stack(
            [
                model(**tokenizer(t, return_tensors="pt", truncation=True, padding=False)).logits[0]
                for t in texts
            ]
        )
        model.classifier.bias[1] -= (logits[:, 1] - logits[:, 0]).median()
    model.save_pretrained(folder)


def test_from_texts_to_marked_words(folder: Path, tmp_path: Path) -> None:
    draw = random.Random(0)
    words = ["zzz", "aaa", "qq", "xy", "bo", "vvv"]
    texts = [" ".join(draw.choices(words, k=5)) for _ in range(80)]
    balanced(folder, texts)
    run = rss_rl.explain_classifier(
        folder,
        texts,
        keep=0.4,
        out=tmp_path / "run",
        overrides={"phases.0.steps": 6, "evaluation.every": 3, "batch_size": 8},
    )
    assert run.finished
    assert run.config.reward.target_share == 0.4
    assert set(run.model.labels.names) == {"calm", "loud"}
    (marked,) = run.model.select(["zzz aaa unheard"])[0]
    assert marked.selection.shape == (2, 3)
    # The classifier is asked about words that are new to the run, too.
    text = "zzz aaa unheard of"
    (checked,) = run.model.check([text])
    (kept,) = checked.sentences
    shown = " ".join(word for word, bit in zip(text.split(), kept.kept, strict=True) if bit)
    for read, about in ((text, {checked.prediction}), (shown, {"calm", "loud"})):
        shares = said(folder, read)
        assert max(shares, key=lambda name: shares[name]) in about
    assert checked.class_probabilities == pytest.approx(shares, abs=1e-5)
    asked = ["select", str(tmp_path / "run"), text, "--check"]
    told = CliRunner().invoke(app, asked)
    assert told.exit_code == 0, told.output
    assert f"prediction: {checked.prediction}" in told.output
    assert "takes no drawn selection" in CliRunner().invoke(app, [*asked, "--sampled", "1"]).output


def said(folder: Path, text: str) -> dict[str, float]:
    """The probability of each class, by the library itself."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = model(**tiny_transformers.tokenizer()(text, return_tensors="pt")).logits[0]
    return dict(zip(("calm", "loud"), torch.softmax(logits, -1).tolist(), strict=True))


def test_long_texts_and_a_policy_that_reads_as_the_classifier_does(
    folder: Path, tmp_path: Path
) -> None:
    """A classifier says how likely classes are and nothing of a gradient, whatever learns."""
    draw = random.Random(0)
    texts = [" ".join(draw.choices(["zzz", "aaa", "qq", "xy"], k=110)) for _ in range(40)]
    balanced(folder, texts)
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts) + "\n")
    (tmp_path / "vectors.txt").write_text("zzz 1 0\naaa 0 1\nqq 1 1\nxy 0 0\n")
    given = ["explain-classifier", str(folder), str(tmp_path / "texts.csv"), "--text", "text"]
    more = ["--contextual", "--vectors", str(tmp_path / "vectors.txt"), "--out"]
    small = ["phases.0.steps=2", "evaluation.every=2", "batch_size=4", "policy.options.hidden=4"]
    done = CliRunner().invoke(app, [*given, *more, str(tmp_path / "run"), *small])
    assert done.exit_code == 0, done.output
    assert "phases.1" not in done.output  # there is one phase
    run = rss_rl.Run(tmp_path / "run")
    assert run.config.policy.pretrained == str(folder)
    (marked,) = run.model.select([("zzz", "aaa", "unheard")])[0]
    assert marked.selection.shape == (2, 3)


WORDS = ["zzz", "aaa", "qq", "xy", "bo", "vvv"]
SMALL = ["phases.0.steps=30", "evaluation.every=15", "batch_size=16", "policy.options.hidden=8"]


def texts_of(count: int) -> list[str]:
    draw = random.Random(0)
    return [" ".join(draw.choices(WORDS, k=6)) for _ in range(count)]


def test_a_function_is_explained(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """From the command line, by its name; the word that it goes by is kept more than others."""
    (tmp_path / "somebody.py").write_text(
        "def probabilities(texts):\n"
        "    many = [t.split().count('zzz') for t in texts]\n"
        "    return [[1 - c, c] for c in (0.05 + 0.9 * (m > 0) for m in many)]\n"
        "probabilities.classes = ['calm', 'loud']\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts_of(300)) + "\n")
    given = ["somebody:probabilities", "texts.csv", "--text", "text", "--keep", "0.3"]
    done = CliRunner().invoke(app, ["explain-classifier", *given])
    assert done.exit_code == 0, done.output
    assert "report.html" in done.output
    with pytest.raises(ConfigError, match="opening the file would import that code"):
        rss_rl.Run("runs/explained")
    run = rss_rl.Run("runs/explained", trust_plugins=True)
    assert set(run.model.labels.names) == {"calm", "loud"}
    (marked,) = run.model.select(["aaa qq zzz xy bo vvv"])[0]
    chances = marked.probabilities.max(0)
    assert chances.argmax() == 2
    (checked,) = run.model.check(["aaa qq zzz xy bo vvv"])
    assert (checked.sentences[0].kept == marked.kept).all()  # a function has no gradient
    assert checked.prediction == "loud"
    sure = 0.95 if marked.kept[2] else 0.05
    assert checked.class_probabilities == pytest.approx({"calm": 1 - sure, "loud": sure})


def test_words_are_asked_about_as_they_are_written(
    folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Lower case is for transformers whose tokenizers make no difference."""
    (tmp_path / "cased.py").write_text(
        "asked = set()\n"
        "def probabilities(texts):\n"
        "    asked.update(word for text in texts for word in text.split())\n"
        "    return [[1 - c, c] for c in (0.05 + 0.9 * ('zzz' in t) for t in texts)]\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    texts = [text.replace("aaa", "Aaa") for text in texts_of(60)]
    small = ["phases.0.steps=2", "evaluation.every=2", "batch_size=4", "policy.options.hidden=4"]

    def explained(classifier: Path | str, name: str) -> bool:
        run = rss_rl.explain_classifier(
            classifier, texts, keep=0.4, out=tmp_path / name, overrides=small
        )
        return open_prepared(run.config.data).manifest.tokenizer.lower

    assert not explained("cased:probabilities", "function")
    import cased  # type: ignore[import-not-found]

    assert cased.asked == set(WORDS) - {"aaa"} | {"Aaa"}
    balanced(folder, texts)
    assert explained(folder, "uncased")
    place = tmp_path / "classifier"
    own = tiny_transformers.tokenizer(cased=True)
    settings = {"vocab_size": len(own), "max_position_embeddings": 128}
    tiny_transformers.save(place, classes=2, **settings)
    own.save_pretrained(place)
    balanced(place, texts, own)
    assert not explained(place, "cased")


def test_a_transformer_that_reads_single_texts(tmp_path: Path) -> None:
    place = tiny_transformers.save_another(tmp_path / "gpt2", "gpt2", classes=2, pad_token_id=None)
    with pytest.raises(ConfigError, match="cannot read several texts at once") as caught:
        rss_rl.explain_classifier(place, ["zzz aaa", "qq"], out=tmp_path / "run")
    assert "pad_token_id" in str(caught.value.remedy)
    assert not (tmp_path / "run").exists()


def test_what_speaks_for_a_class_that_is_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In texts of which the classifier says the other class, too."""
    (tmp_path / "counted.py").write_text(
        "def probabilities(texts):\n"
        "    found = [t.split() for t in texts]\n"
        "    odds = [3 ** (2 * t.count('zzz') - 2 * t.count('aaa') + 1) for t in found]\n"
        "    return [[1 / (1 + o), o / (1 + o)] for o in odds]\n"
        "probabilities.classes = ['calm', 'loud']\n"
    )
    monkeypatch.chdir(tmp_path)
    (tmp_path / "texts.csv").write_text("text\n" + "\n".join(texts_of(300)) + "\n")
    given = ["counted:probabilities", "texts.csv", "--text", "text", "--keep", "0.17"]
    for name, word in (("calm", "aaa"), ("loud", "zzz")):
        out = ["--class", name, "--out", name]
        done = CliRunner().invoke(app, ["explain-classifier", *given, *out])
        assert done.exit_code == 0, done.output
        run = rss_rl.Run(name, trust_plugins=True)
        for text in ("qq zzz xy aaa bo vvv zzz", "qq zzz xy aaa bo vvv aaa"):
            (marked,) = run.model.select([text])[0]
            assert text.split()[marked.probabilities.max(0).argmax()] == word


def test_functions_that_cannot_be_asked(tmp_path: Path) -> None:
    texts = texts_of(40)
    with pytest.raises(ConfigError, match="cannot find"):
        rss_rl.explain_classifier(
            lambda given: [[0.5, 0.5]] * len(given), texts, out=tmp_path / "r"
        )
    for lost in (Named().told, Named(), functools.partial(beyond)):
        with pytest.raises(ConfigError, match="cannot find"):
            rss_rl.explain_classifier(lost, texts, out=tmp_path / "r")
    with pytest.raises(ConfigError, match="is method, not a function"):
        rss_rl.explain_classifier(f"{__name__}:NAMED.told", texts, out=tmp_path / "r")
    with pytest.raises(ConfigError, match="cannot be imported"):
        rss_rl.explain_classifier("no_such_module:asked", texts, out=tmp_path / "r")
    for wrong in (broken, one_number, beyond):
        with pytest.raises(ComponentError, match=r"raises|returns no probabilities"):
            rss_rl.explain_classifier(wrong, texts, out=tmp_path / "r")
    with pytest.raises(ConfigError, match="has no encoder"):
        rss_rl.explain_classifier(two_of_three, texts, contextual=True, out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


class Named:
    def told(self, texts: list[str]) -> list[list[float]]:
        return beyond(texts)

    __call__ = told


NAMED = Named()


def two_of_three(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1, 0.0] if text.startswith("a") else [0.0, 0.3, 0.7] for text in texts]


def test_a_class_that_is_never_said(tmp_path: Path) -> None:
    """Classes without names are numbers, which a text may leave out."""
    small = {"phases.0.steps": 4, "evaluation.every": 2, "batch_size": 8}
    run = rss_rl.explain_classifier(
        two_of_three, texts_of(60), out=tmp_path / "run", overrides=small
    )
    assert run.model.labels.names == ("0", "2")


def broken(texts: list[str]) -> list[list[float]]:
    raise ValueError("no answer")


def one_number(texts: list[str]) -> list[float]:
    return [0.5] * len(texts)


def beyond(texts: list[str]) -> list[list[float]]:
    return [[2.0, -1.0]] * len(texts)


def test_what_a_function_is_asked() -> None:
    """The selected words with a space between them, or with what stands for the others."""
    asked: list[list[str]] = []

    def told(texts: list[str]) -> list[list[float]]:
        asked.append(list(texts))
        return [[0.0, 1.0] if "b" in text else [0.75, 0.25] for text in texts]

    words = ["<pad>", "<unk>", "a", "b", "c"]
    tokens, valid = np.array([[2, 3, 4], [4, 2, 0]]), np.array([[1, 1, 1], [1, 1, 0]], bool)
    labels = LabelSpec("classes", ("0", "1"))
    batch = Batch(np.arange(2), (tokens,), (valid,), np.array([1, 0]))
    bits = np.zeros((2, 2, 3), bool)
    bits[0, 0, :2] = bits[1, 1, 0] = True
    component = of_function(told, "m:told")
    for options, shown in (({}, ["a b", "c"]), ({"absent": "_"}, ["a b _", "c _"])):
        model = component.build(
            RewardSetup(labels, 1, None, "cpu", words),
            component.parse({"target": "label", **options}),
        )
        found = model.score(batch, [bits])["log_likelihood"]
        assert asked.pop() == shown
        np.testing.assert_allclose(found, np.log([1.0, 0.75]), rtol=1e-6)
    predicts = component.build(RewardSetup(labels, 1, None, "cpu", words), component.parse({}))
    found = predicts.score(batch, [bits * 0 > 0])["log_likelihood"]  # nothing is kept
    np.testing.assert_allclose(found, np.log([0.25, 0.75]), rtol=1e-6)
    assert asked[-2:] == [["", ""], ["a b c", "c a"]]


def test_how_many_texts_were_asked_about_is_shown(folder: Path, tmp_path: Path) -> None:
    terminal = SafeConsole(file=io.StringIO(), force_terminal=True, width=80)
    for classifier in (folder, always_calm):
        with pytest.raises(DataError, match="for every text"):
            rss_rl.explain_classifier(
                classifier, ["aaa"] * 40, out=tmp_path / "run", console=terminal
            )
        said = terminal.file.getvalue()  # type: ignore[attr-defined]
        assert "running the classifier" in said
        assert "40/40" in said
        terminal.file.truncate(0)


def test_a_share_that_cannot_be_kept_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="keep"):
        rss_rl.explain_classifier("no-such-folder", ["aaa"], keep=1.5, out=tmp_path / "run")


def always_calm(texts: list[str]) -> list[list[float]]:
    return [[0.9, 0.1] for _ in texts]


def test_texts_that_tell_nothing_are_refused(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="there is no text"):
        rss_rl.explain_classifier(folder, [], out=tmp_path / "run")
    with pytest.raises(DataError, match="for every text"):
        rss_rl.explain_classifier(folder, ["aaa"] * 9, out=tmp_path / "run")
