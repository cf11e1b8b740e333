"""A classifier of somebody's as reward model: what it is asked, and of which class."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from test_transformer import WORDS, pieces
from transformers import AutoModelForSequenceClassification

import rss_rl
from rss_rl.components import find_component
from rss_rl.errors import ComponentError, ConfigError
from rss_rl.models.inputs import tensor_batch
from rss_rl.reward_models.blackbox import Probabilities, of_function
from rss_rl.reward_models.reward_model import RewardSetup
from rss_rl.testing import check_reward_model
from rss_rl.types import Array, Batch, LabelSpec

pytestmark = pytest.mark.usefixtures("no_charts")
LABELS = LabelSpec("classes", ("no", "yes"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("tiny") / "classifier"
    return tiny_transformers.save(place, classes=2, id2label={0: "YES", 1: "NO"})


def built(folder: Path, labels: LabelSpec = LABELS, sentences: int = 1, **options: Any) -> Any:
    component = find_component("reward_model", "blackbox")
    parsed = component.parse({"pretrained": str(folder), **options})
    return component.build(RewardSetup(labels, sentences, None, "cpu", WORDS), parsed)


def batch() -> tuple[Batch, Array]:
    """Two texts with two selections each, sample-major; the second text is longer than is read."""
    tokens = np.array([[2, 3, 4, 5, 0, 0], [8, 7, 8, 2, 9, 3]])
    valid = tokens > 0
    once = Batch(np.array([4, 1]), (tokens,), (valid,), np.array([0, 1]))
    bits = np.random.default_rng(0).random((4, 2, 6)) < 0.4
    return once.repeat(2), bits & np.concatenate([valid, valid])[:, None]


def slow(folder: Path, rows: list[list[int]]) -> torch.Tensor:
    """Log-probabilities by the library itself, text by text."""
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    room = tiny_transformers.LONGEST - 2
    with torch.no_grad():
        logits = [model(input_ids=torch.tensor([[2, *row[:room], 3]])).logits[0] for row in rows]
    return torch.log_softmax(torch.stack(logits), -1)


@pytest.mark.parametrize("target", ["label", "prediction"])
def test_scores_are_the_classifiers(folder: Path, target: str) -> None:
    examples, bits = batch()
    assert len(pieces(examples.tokens[0][1].tolist())) > tiny_transformers.LONGEST
    found = built(folder, target=target).score(examples, [bits])
    rows, whole = [], []
    for words, valid, kept in zip(examples.tokens[0], examples.valid[0], bits.any(1), strict=True):
        real = words[valid].tolist()
        whole.append(pieces(real))
        rows.append(pieces([w for w, bit in zip(real, kept, strict=False) if bit]))
    theirs = slow(folder, rows)
    wanted = 1 - torch.tensor(examples.labels)  # they number the classes the other way round
    if target == "prediction":
        wanted = slow(folder, whole).argmax(-1)
    expected = theirs[torch.arange(4), wanted]
    np.testing.assert_allclose(found["log_likelihood"], expected, atol=1e-5)


@pytest.mark.parametrize("target", ["label", "prediction"])
def test_gates_of_0_and_1_lose_what_a_selection_scores(folder: Path, target: str) -> None:
    examples, bits = batch()
    reward = built(folder, target=target)
    once = Batch(
        *(
            part[:2] if isinstance(part, np.ndarray) else (part[0][:2],)
            for part in (examples.rows, examples.tokens, examples.valid, examples.labels)
        )
    )
    gates = torch.from_numpy(bits.reshape(2, 2, 2, 6)).float().requires_grad_()
    (scores,) = reward.gated_scores(tensor_batch(once, torch.device("cpu")), [gates]).values()
    expected = reward.score(examples, [bits])["log_likelihood"]
    np.testing.assert_allclose(scores.detach(), expected, atol=1e-5)
    scores.sum().backward()
    assert gates.grad is not None
    assert bool((gates.grad[gates > 0] != 0).any())


def test_it_keeps_the_promises_of_reward_models(folder: Path) -> None:
    component = find_component("reward_model", "blackbox")
    for sentences in (1, 2):
        check_reward_model(component, options={"pretrained": str(folder)}, sentences=sentences)


def test_pairs_are_read_as_the_library_reads_them(tmp_path: Path) -> None:
    """Removed words, gates of 0 and 1, and a second text that loses all its words."""
    settings = {"id2label": {0: "YES", 1: "NO"}, "initializer_range": 0.5}
    folder = tiny_transformers.save(tmp_path, classes=2, max_position_embeddings=128, **settings)
    names = ["input_ids", "token_type_ids", "attention_mask"]
    cut = tiny_transformers.tokenizer(model_max_length=128, model_input_names=names)
    cut.save_pretrained(folder)
    examples, bits = batch()
    second = np.array([[9, 3, 0], [2, 8, 9], [9, 3, 0], [2, 8, 9]])
    others = np.random.default_rng(1).random((4, 2, 3)) < 0.6
    others[0] = False
    tokens, valid = (examples.tokens[0][:, :3], second), (examples.valid[0][:, :3], second > 0)
    pairs = Batch(examples.rows, tokens, valid, examples.labels)
    chosen = [bits[..., :3] & valid[0][:, None], others & valid[1][:, None]]
    reward = built(folder, sentences=2, target="label")
    found = reward.score(pairs, chosen)["log_likelihood"]
    model = AutoModelForSequenceClassification.from_pretrained(folder).eval()
    for row in range(4):
        left, right = (
            pieces(words[row][keep[row].any(0)].tolist())
            for words, keep in zip(tokens, chosen, strict=True)
        )
        ids = torch.tensor([[2, *left, 3, *right, 3]])
        types = torch.tensor([[0] * (len(left) + 2) + [1] * (len(right) + 1)])
        with torch.no_grad():
            theirs = torch.log_softmax(model(input_ids=ids, token_type_ids=types).logits[0], -1)
        assert found[row] == pytest.approx(theirs[1 - examples.labels[row]].item(), abs=1e-5)
    gates = [torch.from_numpy(bits)[None].float() for bits in chosen]
    (scores,) = reward.gated_scores(tensor_batch(pairs, torch.device("cpu")), gates).values()
    np.testing.assert_allclose(scores, found, atol=1e-5)


def of(function: Probabilities, sentences: int = 1, **options: Any) -> Any:
    component = of_function(function, "m:told")
    setup = RewardSetup(LabelSpec("classes", ("0", "1")), sentences, None, "cpu", WORDS)
    return component.build(setup, component.parse(options))


def test_what_a_function_is_asked() -> None:
    """Selected words with a space between; about the whole text once."""
    asked: list[list[Any]] = []

    def told(texts: list[Any]) -> list[list[float]]:
        asked.append(list(texts))
        return [[0.0, 1.0] if WORDS[3] in text else [0.75, 0.25] for text in texts]

    a, b, c = WORDS[2:5]
    tokens, valid = np.array([[2, 3, 4], [4, 2, 0]]), np.array([[1, 1, 1], [1, 1, 0]], bool)
    examples = Batch(np.arange(2), (tokens,), (valid,), np.array([1, 0]))
    bits = np.zeros((2, 2, 3), bool)
    bits[0, 0, :2] = bits[1, 1, 0] = True
    found = of(told, target="label").score(examples, [bits])["log_likelihood"]
    assert asked.pop() == [f"{a} {b}", c]
    np.testing.assert_allclose(found, np.log([1.0, 0.75]), rtol=1e-6)
    predicts = of(told)
    for _ in range(2):
        found = predicts.score(examples.repeat(2), [np.concatenate([bits * 0 > 0, bits])])
        expected = np.log([0.25, 0.75, 1.0, 0.75])
        np.testing.assert_allclose(found["log_likelihood"], expected, rtol=1e-6)
    assert asked.count([f"{a} {b} {c}", f"{c} {a}"]) == 1
    assert len(asked) == 3
    pairs = Batch(np.arange(2), (tokens, tokens), (valid, valid), np.array([1, 0]))
    of(told, sentences=2, target="label").score(pairs, [bits, ~bits & valid[:, None]])
    assert asked[-1] == [(f"{a} {b}", f"{a} {b} {c}"), (c, f"{c} {a}")]


def raises(texts: list[str]) -> list[list[float]]:
    raise ValueError("no answer")


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        (raises, "no answer"),
        (lambda texts: [0.5] * len(texts), "returns no probabilities"),
        (lambda texts: [[2.0, -1.0]] * len(texts), "returns no probabilities"),
    ],
)
def test_a_function_that_gives_no_probabilities(wrong: Probabilities, message: str) -> None:
    examples, bits = batch()
    with pytest.raises(ComponentError, match=message):
        of(wrong).score(examples, [bits])


def test_the_word_that_a_function_goes_by_is_found(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the tutorial has it: a function by its name, from a table whose labels say nothing."""
    (tmp_path / "somebody.py").write_text(
        "def probabilities(texts):\n"
        "    return [[1 - c, c] for c in (0.05 + 0.9 * ('zzz' in t.split()) for t in texts)]\n"
    )
    monkeypatch.chdir(tmp_path)
    draw = random.Random(0)
    words = ["zzz", "aaa", "qq", "xy", "bo", "vvv"]
    rows = [{"text": " ".join(draw.choices(words, k=6)), "label": n % 2} for n in range(200)]
    run = rss_rl.fit(
        rows,
        text="text",
        label="label",
        keep=0.3,
        config="transformer/explain",
        out=tmp_path / "run",
        overrides=[
            "reward.model=somebody:probabilities",
            "sampler.selections=4",
            "phases.0.steps=30",
            "evaluation.every=30",
            "policy=rss",
        ],
    )
    model = rss_rl.load(run.path, "latest", trust_plugins=True)
    (marked,) = model.select(["aaa qq zzz xy bo vvv"])[0]
    assert marked.probabilities.max(0).argmax() == 2
    with pytest.raises(ConfigError, match="opening the file would import that code"):
        rss_rl.Run(tmp_path / "run")


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="explains classes of texts"):
        built(folder, LabelSpec("score", low=0, high=1))
    with pytest.raises(
        ConfigError, match=r"has no class 'maybe', which the data have; its classes: YES, NO"
    ):
        built(folder, LabelSpec("classes", ("yes", "maybe")), target="label")
    for name in ("xlnet", "fnet"):  # read the last piece, mix padding in
        padded = tiny_transformers.save_another(
            tmp_path / name, name, classes=2, initializer_range=0.5
        )
        with pytest.raises(ConfigError, match="depend on the padding") as caught:
            built(padded)
        assert "function" in str(caught.value.remedy)
    single = tiny_transformers.save_another(tmp_path / "gpt2", "gpt2", classes=2, pad_token_id=None)
    with pytest.raises(ConfigError, match="cannot read several texts at once"):
        built(single)
    encoder = tiny_transformers.save(tmp_path / "encoder")
    with pytest.raises(ConfigError, match="is not a text classifier but BertModel"):
        built(encoder)
