"""The block length that a run works with: a number for the run, by the paper's rule or by order."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from rss_rl.config import EncoderChoice, RunConfig
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Prepared
from rss_rl.errors import ConfigError
from rss_rl.models.build import build_encoder
from rss_rl.models.encoders.biblosan import block_length
from rss_rl.reading.models import build_prepared_models, training_lengths
from rss_rl.types import LabelSpec


def blocks(config: RunConfig, **options: object) -> RunConfig:
    encoder = EncoderChoice(name="biblosan", options=options)
    model = config.model.model_copy(update={"encoder": encoder})
    return config.model_copy(update={"model": model})


def built(config: RunConfig, manifest: Manifest) -> int:
    """The block length that an encoder gets."""
    lengths = training_lengths(manifest, config.batch_size)
    encoder: Any = build_encoder(config.model, 4, lengths)
    return int(encoder.context.directions[0]._length)


def test_the_manifest_holds_mean_and_spread_of_the_lengths(tiny: Prepared) -> None:
    for name, info in tiny.manifest.splits.items():
        lengths = tiny.split(name).lengths()
        assert info.length_sd == pytest.approx(lengths.std(0), rel=1e-12)
        assert np.array(info.tokens) / info.rows == pytest.approx(lengths.mean(0))
    assert Manifest.parse(tiny.manifest.model_dump_json().encode(), "there") == tiny.manifest


@pytest.mark.parametrize("batch", [1, 8, 512])
def test_the_rule_reads_the_training_split(
    tiny: Prepared, tiny_config: RunConfig, batch: int
) -> None:
    lengths = tiny.split("train").lengths()
    wanted = max(
        round((2 * (sd * math.sqrt(2 * math.log(batch)) + mean)) ** (1 / 3))
        for mean, sd in zip(lengths.mean(0), lengths.std(0), strict=True)
    )
    config = blocks(tiny_config).model_copy(update={"batch_size": batch})
    assert built(config, tiny.manifest) == wanted
    assert wanted == {1: 2, 8: 3, 512: 3}[batch]


def test_a_given_length_stays(tiny: Prepared, tiny_config: RunConfig) -> None:
    assert built(blocks(tiny_config, block_length=7), tiny.manifest) == 7
    classifier: Any = build_prepared_models(blocks(tiny_config), tiny).classifier
    assert classifier.encoder.context.directions[0]._length == 3


def test_passages_give_no_length(tiny: Prepared, tiny_config: RunConfig) -> None:
    passages = tiny.manifest.model_copy(update={"labels": LabelSpec("sentence")})
    with pytest.raises(ConfigError, match=r"options\.block_length"):
        built(blocks(tiny_config), passages)
    assert built(blocks(tiny_config, block_length=2), passages) == 2


def test_the_rule_takes_the_least_memory() -> None:
    """n r + (n / r)^2 over whole r is least within one of the rule's r."""
    for n in (8, 20, 60, 200, 1000):
        best = min(range(1, n + 1), key=lambda r: n * r + (n / r) ** 2)
        assert abs(block_length(n) - best) <= 1
