"""A policy that reads the whole example: whoever asks it selects the same words."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from rss_rl.config import RunConfig, parse_config
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.models.inputs import tensor_batch
from rss_rl.reading.models import build_models, build_prepared_models
from rss_rl.reading.trained_runs import open_models
from rss_rl.rollouts.rollout import Job
from rss_rl.rollouts.sampler import Sampler
from rss_rl.rollouts.snapshot import Publisher
from rss_rl.training.evaluation import evaluate
from rss_rl.training.run import train
from rss_rl.types import LabelSpec

_CPU = torch.device("cpu")


@pytest.fixture(scope="module")
def config(tiny_config: RunConfig) -> RunConfig:
    tree = tiny_config.model_dump(mode="json")
    tree["policy"] |= {"reads": "example"}
    tree["evaluation"] |= {"all_tokens": False}
    tree["reward"] |= {"target_share": 0.4}
    tree["learner"]["policy"] |= {"learning_rate": 0.01}
    return parse_config(tree, where="test")


@pytest.fixture(scope="module")
def run(config: RunConfig, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("reads") / "run"
    list(train(config, path))
    return path


def test_what_is_drawn_depends_on_the_other_sentence(config: RunConfig, tiny: Prepared) -> None:
    """And is what the modules draw from what the one function shows them."""
    models = build_prepared_models(config, tiny)
    sampler = Sampler(config, models, tiny.split("train"))
    sampler.load(Publisher(models).publish(0))
    rows = np.arange(6)
    job = Job(0, 0, rows, 2, scored=True, thresholded=True, bitwise=True)
    rollout = sampler.sample(job)
    tensors = tensor_batch(tiny.split("train").batch(rows), _CPU)
    swapped = tensors._replace(
        tokens=[tensors.tokens[0], tensors.tokens[1].flip(0)],
        valid=[tensors.valid[0], tensors.valid[1].flip(0)],
    )
    with torch.no_grad():
        shown, beside_another = map(models.policy_inputs, (tensors, swapped))
        for slot, inputs in enumerate(shown):
            bits = torch.from_numpy(rollout.selections[slot])
            expected = models.policy(inputs).evaluate(bits).log_prob
            np.testing.assert_allclose(rollout.bit_log_prob[slot], expected, atol=1e-5)
        mine, other = (models.policy(part[0]).probs for part in (shown, beside_another))
    assert ((mine - other).abs().amax((1, 2)) > 1e-4).all()


def test_all_ways_to_use_a_run_select_the_same(run: Path, tiny: Prepared) -> None:
    from rss_rl.inference.artifact import export_run
    from rss_rl.inference.model import load_model

    config, models, _ = open_models(run, "latest")
    assert models.reads == "example"
    examples = tiny.split("test")
    texts = [examples.words(row) for row in range(len(examples))]
    exported = export_run(run, run.with_name("exported"), which="latest")
    explained = [load_model(run, "latest").explain(pair) for pair in texts]  # one at a time
    kept = []
    for model in (load_model(run, "latest"), load_model(exported)):
        for one, other in zip(model.predict(texts), explained, strict=True):
            assert one.prediction == other.prediction
            for mine, theirs in zip(one.sentences, other.sentences, strict=True):
                np.testing.assert_array_equal(mine.selection, theirs.selection)
                assert mine.probabilities is not None
                np.testing.assert_allclose(mine.probabilities, theirs.probabilities, atol=1e-5)
    for one in explained:
        bits = np.concatenate([sentence.selection.any(0) for sentence in one.sentences])
        kept.append(bits.mean())
    scores = evaluate(models, examples, config, ["thresholded"], device=_CPU)["thresholded"]
    assert scores["kept"] == pytest.approx(np.mean(kept), abs=1e-6)
    assert 0 < scores["kept"] < 1


def test_a_task_of_one_sentence_is_refused(config: RunConfig, tiny: Prepared) -> None:
    with pytest.raises(ConfigError, match=r"policy\.reads"):
        build_models(
            config,
            LabelSpec("classes", ("no", "yes")),
            1,
            tiny.vectors(),
            tiny.vocabulary.trainable,
        )
