"""Which words does a classifier need? LIME, SHAP, integrated gradients and our policy beside each
other.

    make peers && .venv-peers/bin/python tests/benchmarks/explainers.py --classifier FOLDER \\
        --movies ERASER_MOVIES --run ours=runs/explained --out explainers

FOLDER holds an AutoModelForSequenceClassification with its tokenizer. The texts are --texts reviews
of --split, drawn by --seed, each cut to the words whose pieces the classifier reads at once. A
feature is a word where it stands. All explain the class that the classifier predicts from the
whole text, and all are asked in turn for one text after another, in one process on one thread:

  random                 uniform scores
  LIME                   `lime`, --samples texts from which random words are removed
  KernelSHAP             `shap.KernelExplainer`, --samples texts; these do not determine a value for
                         each of as many words, so a fifth of the words have one, by the package's
                         path of the lasso
  SHAP, partition        `shap.PartitionExplainer`, --samples texts: Owen values
  integrated gradients   `captum`, 50 steps from padding to the pieces' vectors, of the log-odds,
                         summed over the pieces of a word
  ours, no policy        `rss_rl.mark_words`
  every --run NAME=DIR   a run of `rss-rl explain-classifier`: one pass of its policy
  NAME, checked          the same, checked by the classifier as `rss-rl select --check` does

The same code judges all scores. A word that is not kept is removed from the text. Of the predicted
class, sufficiency is its probability given the whole text less that given the kept words,
comprehensiveness that less the one given all but the kept words: of the fifth of the words that
score highest, and the mean over the shares .05, .10, ..., .95. Agreement with what people marked is
that of `rss_rl.ops.rationale_overlap`. The explainers ask the classifier with bfloat16 products
where --precision says so, all alike; judged is in float32.

OUT/explainers.jsonl holds a line for each text and method: the same command continues from it. Also
written: explainers.json, the means over the texts that all methods have scored; the table is
printed. Seconds are of the processor. Passes are the texts that the classifier reads; the one pass
of a contextual policy's encoder is not counted.
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

import rss_rl
from rss_rl.inference.explanation import Explanation
from rss_rl.inference.gradient import GradientExplainer
from rss_rl.ops.rationale_overlap import BUDGETS, precision_recall_area, ranked_scores, top_share
from rss_rl.types import Array

CELLS = 1 << 12
"""Pieces of texts that the classifier reads together."""
STEPS = 50
SHARE = 0.2
MEASURES = (
    "sufficiency",
    "comprehensiveness",
    "budget_sufficiency",
    "budget_comprehensiveness",
    "auprc",
    "budget_token_f1",
    "budget_iou_f1",
    "count_token_f1",
    "seconds",
    "passes",
)


@dataclass(frozen=True)
class Review:
    """A text: its name, its words, and which of them people marked, bool [n]."""

    name: str
    words: list[str]
    marked: Array


class Classifier:
    """Somebody's classifier, which counts the texts that it reads.

    Args:
        folder: of an AutoModelForSequenceClassification with its tokenizer.
        lower: bfloat16 products.
    """

    def __init__(self, folder: Path, lower: bool) -> None:
        from transformers import AutoModelForSequenceClassification, AutoTokenizer

        self.tokenizer: Any = AutoTokenizer.from_pretrained(folder)
        self.model: Any = AutoModelForSequenceClassification.from_pretrained(folder).eval()
        self.longest = self.model.config.max_position_embeddings
        self.lower = lower
        self.passes = 0

    def autocast(self) -> torch.autocast:
        """In which it is asked."""
        return torch.autocast("cpu", torch.bfloat16, enabled=self.lower)

    def pieces(self, words: Sequence[str]) -> Any:
        """What the tokenizer makes of words, cut to what the classifier reads."""
        return self.tokenizer(
            list(words), is_split_into_words=True, truncation=True, max_length=self.longest
        )

    def of_texts(self, texts: Sequence[str]) -> Array:
        """Probabilities, float64 [K, C], of texts of words with a space between them."""
        given = self.tokenizer(list(texts), truncation=True, max_length=self.longest)["input_ids"]
        self.passes += len(given)
        order = sorted(range(len(given)), key=lambda number: len(given[number]))
        found: list[Array] = [np.empty(0)] * len(given)
        for mine in cut(order, [len(ids) for ids in given]):
            batch = self.tokenizer.pad({"input_ids": [given[i] for i in mine]}, return_tensors="pt")
            with torch.inference_mode(), self.autocast():
                logits = self.model(**batch).logits
            for number, row in zip(mine, torch.softmax(logits.double(), -1).numpy(), strict=True):
                found[number] = row
        return np.stack(found)

    def of_masks(self, words: Sequence[str], kept: Array) -> Array:
        """Probabilities [K, C] of the words of bool [K, n] alone."""
        own = np.array(words, dtype=object)
        return self.of_texts([" ".join(own[bits]) for bits in np.asarray(kept) > 0.5])


def cut(order: Sequence[int], lengths: Sequence[int]) -> Iterator[list[int]]:
    """Batches of an ascending order of lengths, of CELLS pieces at most with padding."""
    batch: list[int] = []
    for number in order:
        if batch and lengths[number] * (len(batch) + 1) > CELLS:
            yield batch
            batch = []
        batch.append(number)
    yield batch


@dataclass(frozen=True)
class Asked:
    """What a method is given: the words of a text, the class that is predicted of it, a seed."""

    classifier: Classifier
    words: list[str]
    label: int
    seed: int
    samples: int


def at_random(asked: Asked) -> Array:
    """Uniform scores [n]."""
    return np.random.default_rng(asked.seed).random(len(asked.words))


def lime_scores(asked: Asked) -> Array:
    """Weights of LIME's linear model, [n]."""
    from lime.lime_text import LimeTextExplainer

    explainer = LimeTextExplainer(
        bow=False, mask_string="", split_expression=str.split, random_state=asked.seed
    )
    found = explainer.explain_instance(
        " ".join(asked.words),
        asked.classifier.of_texts,
        labels=(asked.label,),
        num_features=len(asked.words),
        num_samples=asked.samples,
    )
    scores = np.zeros(len(asked.words))
    for place, weight in found.as_map()[asked.label]:
        scores[place] = weight
    return scores


def kernel_shap(asked: Asked) -> Array:
    """Shapley values by weighted least squares, [n]."""
    import shap

    def output(kept: Array) -> Array:
        return asked.classifier.of_masks(asked.words, kept)[:, asked.label]

    count = len(asked.words)
    explainer = shap.KernelExplainer(output, np.zeros((1, count)))
    np.random.seed(asked.seed)  # noqa: NPY002 - what the package draws from
    values: Array = explainer.shap_values(
        np.ones((1, count)),
        nsamples=asked.samples,
        l1_reg=f"num_features({round(SHARE * count)})",
        silent=True,
    )
    return values[0]


def partition_shap(asked: Asked) -> Array:
    """Owen values over a tree of neighbouring words, [n]."""
    import shap

    def output(kept: Array) -> Array:
        return asked.classifier.of_masks(asked.words, kept)[:, asked.label]

    count = len(asked.words)
    explainer = shap.PartitionExplainer(
        output, shap.maskers.Partition(np.zeros((1, count)), clustering=neighbours(count))
    )
    return np.asarray(
        explainer(np.ones((1, count)), max_evals=asked.samples, silent=True).values[0]
    )


def neighbours(count: int) -> Array:
    """A balanced tree over words in their order, as scipy's linkage, float64 [count - 1, 4]."""
    rows: list[list[float]] = []
    level = [(place, 1) for place in range(count)]
    while len(level) > 1:
        pairs = []
        for first in range(0, len(level) - 1, 2):
            (a, m), (b, n) = level[first : first + 2]
            rows.append([a, b, m + n, m + n])
            pairs.append((count + len(rows) - 1, m + n))
        level = pairs + level[2 * len(pairs) :]
    return np.array(rows, dtype=np.float64)


def gradients(asked: Asked) -> Array:
    """Integrated gradients summed over the pieces of each word, [n]."""
    from captum.attr import LayerIntegratedGradients

    classifier = asked.classifier
    pieces = classifier.pieces(asked.words)
    ids = torch.tensor([pieces["input_ids"]])
    special = torch.tensor([owner is None for owner in pieces.word_ids(0)])
    nothing = torch.where(special, ids, classifier.tokenizer.pad_token_id)

    def log_odds(given: Tensor) -> Tensor:
        logits = classifier.model(input_ids=given).logits.float()
        others = torch.arange(logits.shape[1]) != asked.label
        classifier.passes += len(given)
        return logits[:, asked.label] - logits[:, others].logsumexp(1)

    explainer = LayerIntegratedGradients(log_odds, classifier.model.get_input_embeddings())
    with classifier.autocast():
        found = explainer.attribute(ids, nothing, n_steps=STEPS, internal_batch_size=10)
    each = found.sum(-1)[0].detach().double().numpy()
    scores = np.zeros(len(asked.words))
    for owner, score in zip(pieces.word_ids(0), each, strict=True):
        if owner is not None:
            scores[owner] += score
    return scores


def by_ours(
    explain: Callable[[list[Any]], list[Explanation]], lower: bool
) -> Callable[[Asked], Array]:
    """A method of our own: the probability of a word in its likelier role, [n].

    Args:
        explain: from texts to explanations. lower: bfloat16 products.
    """

    def scores(asked: Asked) -> Array:
        with torch.autocast("cpu", torch.bfloat16, enabled=lower):
            (found,) = explain([tuple(asked.words)])
        chances = found.sentences[0].probabilities
        assert chances is not None
        return chances.max(0).astype(np.float64)

    return scores


METHODS: dict[str, Callable[[Asked], Array]] = {
    "random": at_random,
    "LIME": lime_scores,
    "KernelSHAP": kernel_shap,
    "SHAP, partition": partition_shap,
    "integrated gradients": gradients,
}


def read_reviews(
    folder: Path, split: str, texts: int, seed: int, asked: Classifier
) -> list[Review]:
    """Some reviews of a split, of the words that the classifier reads."""
    lines = (folder / f"{split}.jsonl").read_text().splitlines()
    chosen = np.random.default_rng(seed).permutation(len(lines))[:texts]
    found = []
    for line in (json.loads(lines[number]) for number in chosen):
        name = line["annotation_id"]
        words = (folder / "docs" / name).read_text().split()
        marked = np.zeros(len(words), dtype=bool)
        for evidence in (one for group in line["evidences"] for one in group):
            marked[evidence["start_token"] : evidence["end_token"]] = True
        whole = asked.tokenizer(words, is_split_into_words=True).word_ids(0)
        shown = asked.pieces(words).word_ids(0)
        # The last word may be cut in two: it is left out.
        count = len(words) if len(whole) == len(shown) else shown[-2]
        found.append(Review(name, words[:count], marked[:count]))
    return found


def judge(classifier: Classifier, review: Review, whole: Array, scores: Array) -> dict[str, Any]:
    """The measures of a method's scores [n] of a text; `whole`: its probabilities [C]."""
    shares = {SHARE, *BUDGETS}
    real = np.ones((1, len(scores)), dtype=bool)
    kept = np.concatenate([top_share(scores[None], real, share) for share in sorted(shares)])
    output = classifier.of_masks(review.words, np.concatenate([kept, ~kept]))
    alone, rest = np.split(whole[whole.argmax()] - output[:, whole.argmax()], 2)  # [shares] each
    at = sorted(shares).index(SHARE)
    ranked = ranked_scores(scores, review.marked)
    found = {
        "sufficiency": alone[at],
        "comprehensiveness": rest[at],
        "budget_sufficiency": alone.mean(),
        "budget_comprehensiveness": rest.mean(),
        "auprc": precision_recall_area(scores, review.marked),
        **({} if ranked is None else ranked._asdict()),
    }
    return {name: None if value is None else float(value) for name, value in found.items()}


def lines_of(
    classifier: Classifier, reviews: Sequence[Review], methods: dict[str, Any], given: Any
) -> Iterator[dict[str, Any]]:
    """A line for each text and method; those in OUT are not made again."""
    path = given.out / "explainers.jsonl"
    done = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    yield from (line for line in done if line["method"] in methods)
    known = {(line["review"], line["method"]) for line in done}
    judging = Classifier(given.classifier, lower=False)
    for number, review in enumerate(reviews):
        missing = [name for name in methods if (review.name, name) not in known]
        if not missing:
            continue
        (whole,) = judging.of_masks(review.words, np.ones((1, len(review.words))))
        asked = Asked(classifier, review.words, int(whole.argmax()), number, given.samples)
        for name in missing:
            passes, clock, began = classifier.passes, time.perf_counter(), time.process_time()
            scores = methods[name](asked)
            spent = {
                "seconds": time.process_time() - began,
                "wall": time.perf_counter() - clock,
                "passes": classifier.passes - passes,
            }
            line = {"review": review.name, "method": name, "words": len(review.words), **spent}
            line |= judge(judging, review, whole, scores)
            with path.open("a") as file:
                file.write(json.dumps(line) + "\n")
            print(f"{number + 1}/{len(reviews)} {name}: {spent['seconds']:.2f} s", flush=True)
            yield line


def means(lines: Sequence[dict[str, Any]], base: str) -> dict[str, dict[str, Any]]:
    """Measures of each method on the texts that all have scored, and those of `base` less its own.

    A difference is the mean over texts with its 95% interval, by 10,000 bootstrap samples.
    """
    by: dict[str, dict[str, dict[str, Any]]] = {}
    for line in lines:
        by.setdefault(line["method"], {})[line["review"]] = line
    of_all = set.intersection(*(set(own) for own in by.values()))
    found: dict[str, dict[str, Any]] = {}
    for name, every in by.items():
        own = {review: row for review, row in every.items() if review in of_all}
        rows = list(own.values())
        found[name] = {"texts": len(rows)}
        for key in MEASURES:
            values = [row[key] for row in rows if row.get(key) is not None]
            found[name][key] = float(np.mean(values)) if values else None
        for key in ("sufficiency", "comprehensiveness", "auprc"):
            pairs = [
                (row.get(key), own[r].get(key)) for r, row in by.get(base, {}).items() if r in own
            ]
            differences = np.array([a - b for a, b in pairs if a is not None and b is not None])
            if len(differences) and name != base:
                draws = np.random.default_rng(0).integers(
                    0, len(differences), (10_000, len(differences))
                )
                low, high = np.quantile(differences[draws].mean(1), [0.025, 0.975])
                found[name][f"{key}_difference"] = [
                    float(differences.mean()),
                    float(low),
                    float(high),
                ]
    return found


def table(found: dict[str, dict[str, Any]], base: str) -> str:
    """The means in a table of Markdown."""
    header = ["", "texts", *MEASURES, f"sufficiency of {base} less this one's", "times the seconds"]
    lines = ["| " + " | ".join(header) + " |", "|" + "---|" * len(header)]
    ours = found.get(base, {}).get("seconds")
    for name, own in found.items():
        cells = [name, str(own["texts"])]
        for key in MEASURES:
            cells.append(
                "-"
                if own[key] is None
                else f"{own[key]:.3f}"
                if key != "passes"
                else f"{own[key]:.0f}"
            )
        gap = own.get("sufficiency_difference")
        cells.append("" if gap is None else f"{gap[0]:+.3f} ({gap[1]:+.3f} to {gap[2]:+.3f})")
        cells.append(f"{own['seconds'] / ours:.1f}" if ours else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def parse() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--classifier", type=Path, required=True, metavar="FOLDER")
    parser.add_argument("--movies", type=Path, required=True, help="folder of ERASER's reviews")
    parser.add_argument("--run", action="append", default=[], metavar="NAME=DIR")
    parser.add_argument("--split", default="test", help="val, to choose settings")
    parser.add_argument("--texts", type=int, default=20)
    parser.add_argument("--samples", type=int, default=500)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="float32")
    parser.add_argument("--only", nargs="+", choices=list(METHODS), help="of the methods of others")
    parser.add_argument("--out", type=Path, default=Path("explainers"), help="directory")
    return parser.parse_args()


def main() -> None:
    """Measure what is missing, print, write."""
    given = parse()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    lower = given.precision == "bfloat16"
    classifier = Classifier(given.classifier, lower)
    methods: dict[str, Callable[[Asked], Array]] = {
        name: METHODS[name] for name in given.only or METHODS
    }
    gradient = GradientExplainer(given.classifier)
    methods["ours, no policy"] = by_ours(lambda texts: gradient(texts, SHARE), lower)
    runs = dict(run.split("=", 1) for run in given.run)
    for name, folder in runs.items():
        model = rss_rl.load(folder)
        model.check([("to", "load", "all")])
        methods[name] = by_ours(model.predict, lower)
        methods[f"{name}, checked"] = by_ours(model.check, lower)
    reviews = read_reviews(given.movies, given.split, given.texts, given.seed, classifier)
    lines = list(lines_of(classifier, reviews, methods, given))
    base = next(iter(runs), "ours, no policy")
    found = means(lines, base)
    print(table(found, base))
    (given.out / "explainers.json").write_text(json.dumps(found, indent=2) + "\n")


if __name__ == "__main__":
    main()
