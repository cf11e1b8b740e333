"""A classifier of somebody's as reward model: what it is asked, and of which class."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from test_transformer import WORDS, pieces
from transformers import AutoModelForSequenceClassification

from rss_rl.components import find_component
from rss_rl.errors import ConfigError
from rss_rl.learners.pathwise import GatedReward
from rss_rl.models.inputs import tensor_batch
from rss_rl.reward_models.protocol import RewardSetup
from rss_rl.testing import check_reward_model
from rss_rl.types import Array, Batch, LabelSpec

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


@pytest.mark.parametrize("absent", ["remove", "mask"])
@pytest.mark.parametrize("target", ["label", "prediction"])
def test_scores_are_the_classifiers(folder: Path, absent: str, target: str) -> None:
    examples, bits = batch()
    assert len(pieces(examples.tokens[0][1].tolist())) > tiny_transformers.LONGEST
    found = built(folder, absent=absent, target=target).score(examples, [bits])
    rows, whole = [], []
    for words, valid, kept in zip(examples.tokens[0], examples.valid[0], bits.any(1), strict=True):
        real = words[valid].tolist()
        whole.append(pieces(real))
        left = pieces([w for w, bit in zip(real, kept, strict=False) if bit])
        masked = [
            piece if bit else 4 for w, bit in zip(real, kept, strict=False) for piece in pieces([w])
        ]
        rows.append(left if absent == "remove" else masked)
    theirs = slow(folder, rows)
    wanted = 1 - torch.tensor(examples.labels)  # they number the classes the other way round
    if target == "prediction":
        wanted = slow(folder, whole).argmax(-1)
    expected = theirs[torch.arange(4), wanted]
    np.testing.assert_allclose(found["log_likelihood"], expected, atol=1e-5)


@pytest.mark.parametrize("target", ["label", "prediction"])
def test_a_class_that_is_asked_for_takes_the_place_of_any_other(folder: Path, target: str) -> None:
    examples, bits = batch()
    found = built(folder, target=target, of_class="No").score(examples, [bits])
    same = Batch(examples.rows, examples.tokens, examples.valid, np.zeros(4, dtype=np.int64))
    expected = built(folder, target="label").score(same, [bits])
    np.testing.assert_array_equal(found["log_likelihood"], expected["log_likelihood"])


@pytest.mark.parametrize("of_class", [None, "yes"])
@pytest.mark.parametrize("target", ["label", "prediction"])
def test_gates_of_0_and_1_lose_what_a_selection_scores(
    folder: Path, target: str, of_class: str | None
) -> None:
    examples, bits = batch()
    reward = built(folder, target=target, of_class=of_class)
    once = Batch(
        *(
            part[:2] if isinstance(part, np.ndarray) else (part[0][:2],)
            for part in (examples.rows, examples.tokens, examples.valid, examples.labels)
        )
    )
    gates = torch.from_numpy(bits.reshape(2, 2, 2, 6)).float().requires_grad_()
    losses = reward.gated_losses(tensor_batch(once, torch.device("cpu")), [gates])
    expected = reward.score(examples, [bits])["log_likelihood"]
    np.testing.assert_allclose(-losses.detach(), expected, atol=1e-5)
    losses.sum().backward()
    assert gates.grad is not None
    assert bool((gates.grad[gates > 0] != 0).any())


def test_masked_words_have_no_gates(folder: Path) -> None:
    assert not isinstance(built(folder, absent="mask"), GatedReward)


def test_it_keeps_the_promises_of_reward_models(folder: Path) -> None:
    component = find_component("reward_model", "blackbox")
    check_reward_model(component, options={"pretrained": str(folder)})


def test_bad_input(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="single texts"):
        built(folder, sentences=2)
    with pytest.raises(ConfigError, match="single texts"):
        built(folder, LabelSpec("score", low=0, high=1))
    with pytest.raises(
        ConfigError, match=r"has no class 'maybe', which is asked for; its classes: YES, NO"
    ):
        built(folder, LabelSpec("classes", ("yes", "maybe")), target="label")
    with pytest.raises(ConfigError, match="has no class 'perhaps', which is asked for"):
        built(folder, of_class="perhaps")
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
