"""Texts a second of a transformer that reads a fifth of the words, beside one that reads the texts.

    python tests/benchmarks/transformer_inference.py --pretrained FOLDER --movies MOVIES_FOLDER

Ours: `Model.predict` on raw reviews, tokenising and policy included. The model is that of --run, a
run of `transformer/movies_classifier`, or untrained: the policy then reads word vectors, and its
bias is set so that it keeps the share that is asked for. Theirs: the pipeline of the `transformers`
library on the same weights. It cuts a review off at the longest that the model takes, so it is also
given all of a review, in parts that have been cut before (which is not counted). Both compute in
float32 on one thread; seconds are of the processor's time, in turns.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import json
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import torch

from rss_rl import load
from rss_rl.config import RunConfig
from rss_rl.data.tokens import Tokenizer
from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.inference.model import Model
from rss_rl.rollouts.snapshot import build_models
from rss_rl.types import LabelSpec

LABELS = LabelSpec("classes", ("negative", "positive"))
WIDTH = 100
"""Numbers of a word vector."""


def reviews(folder: Path, count: int) -> list[str]:
    """Texts of ERASER's test split."""
    lines = (folder / "test.jsonl").read_text(encoding="utf-8").splitlines()
    names = [json.loads(line)["annotation_id"] for line in lines][:count]
    return [(folder / "docs" / name).read_text(encoding="utf-8") for name in names]


def ours(pretrained: str, texts: Sequence[str], share: float) -> Model:
    """A model whose random policy keeps this share of the words of these texts."""
    words = sorted({key for text in texts for key in Tokenizer()(text).keys})
    known = (*SPECIAL_WORDS, *words)
    vocabulary = Vocabulary(known, len(known))
    vectors = np.random.default_rng(0).normal(size=(len(vocabulary), WIDTH)).astype(np.float32)
    encoder = {"name": "transformer", "options": {"pretrained": pretrained}}
    config = RunConfig.model_validate(
        {
            "data": "none",
            "model": {"encoder": encoder, "hidden": 128},
            "policy": {"options": {"hidden": 50, "shared": True}},
            "phases": [{"name": "both", "supervised": True, "policy": True, "steps": 1}],
        }
    )
    models = build_models(config, LABELS, 1, vectors, len(vectors), vocabulary.words)
    models.classifier.eval()
    models.policy.eval()
    inputs: Any = SimpleNamespace(
        labels=LABELS,
        sentences=1,
        tokenizer=Tokenizer(),
        vocabulary=vocabulary,
        manifest=SimpleNamespace(name="films"),
    )
    model = Model(config, models, inputs)
    chosen = model.choose([model.encode((text,)) for text in texts])
    assert chosen.probabilities is not None
    chances = chosen.probabilities[0][:, 0][chosen.valid[0]]
    bias: Any = models.policy.modules_by_role[0].score
    with torch.no_grad():
        bias.bias -= torch.logit(torch.quantile(chances, 1 - share))
    return model


def pipeline(pretrained: str, batch_size: int) -> tuple[Any, Callable[[list[str]], object]]:
    """Tokenizer and pipeline, of an untrained head over the same encoder."""
    import transformers

    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    kind = transformers.AutoModelForSequenceClassification
    model = kind.from_pretrained(pretrained, num_labels=2)
    tokenizer = transformers.AutoTokenizer.from_pretrained(pretrained)
    classify: Any = transformers.pipeline("text-classification", model=model, tokenizer=tokenizer)
    cut = {"truncation": True, "max_length": model.config.max_position_embeddings}
    return tokenizer, lambda texts: classify(texts, batch_size=batch_size, **cut)


def windows(tokenizer: Any, text: str, longest: int) -> list[str]:
    """A text in parts of at most this many pieces."""
    places = tokenizer(text, add_special_tokens=False, return_offsets_mapping=True)
    starts = [start for start, _ in places["offset_mapping"]][::longest]
    return [text[a:b] for a, b in zip(starts, [*starts[1:], len(text)], strict=True)]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--pretrained", required=True, metavar="FOLDER")
    parser.add_argument("--movies", required=True, type=Path, metavar="FOLDER")
    parser.add_argument("--run", help="A trained one's model in place of an untrained one.")
    parser.add_argument("--share", type=float, default=0.2, help="Of an untrained model.")
    parser.add_argument("--texts", type=int, default=32)
    parser.add_argument("--repeats", type=int, default=3)
    given = parser.parse_args()
    torch.set_num_threads(1)
    texts = reviews(given.movies, given.texts)
    model = load(given.run) if given.run else ours(given.pretrained, texts, given.share)
    kept = [found.sentences[0] for found in model.predict(texts)]
    share = sum(int(s.selection.any(0).sum()) for s in kept) / sum(len(s.words) for s in kept)
    works: dict[str, Callable[[list[str]], object]] = {"ours": model.predict}
    for size in (1, 8):
        tokenizer, works[f"pipeline, first pieces, batches of {size}"] = pipeline(
            given.pretrained, size
        )
    longest = model.models.classifier.encoder.reader.model.config.max_position_embeddings - 2
    _, whole = pipeline(given.pretrained, 1)
    works["pipeline, all in windows"] = whole
    seconds: dict[str, list[float]] = {name: [] for name in works}
    for _ in range(given.repeats):
        for name, work in works.items():
            # Nobody is to find a text again that was cut before.
            fresh = [f"{text} {time.monotonic_ns()}" for text in texts]
            if work is whole:
                fresh = [part for text in fresh for part in windows(tokenizer, text, longest)]
            started = time.process_time()
            work(fresh)
            seconds[name].append(time.process_time() - started)
    found = {name: statistics.median(times) for name, times in seconds.items()}
    for name, median in found.items():
        print(f"{name}: {len(texts) / median:.1f} texts a second ({median:.2f} s)")
    print(f"ours reads {share:.1%} of the words")
    for name, median in found.items():
        print(f"{median / found['ours']:.2f} times the seconds of ours: {name}")


if __name__ == "__main__":
    main()
