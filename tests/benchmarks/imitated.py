"""Distils policies that read a large encoder into the first layers of a small one.

    python tests/benchmarks/imitated.py runs/mpnet-0 runs/mpnet-1 --student MINILM --layers 4 \
        --out tuned/imitated

Policy distillation (Rusu et al., 2016), of the encoder alone: a policy that reads its states learns
as usual. The runs' policies are `smooth` and read one large encoder, sentence by sentence. For each
word of their training texts the small encoder learns to predict its height, relative to the mean of
its text, and the principal components of the linear functions of its state that feed the policies'
hidden layers. Labels and marks are not used. A command that was stopped resumes.

Legend: n words of all texts, F functions, H size of a state of the large encoder.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import copy
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor, nn

from rss_rl.data.store import Split
from rss_rl.durable import replacing
from rss_rl.errors import ConfigError, RssError
from rss_rl.models.inputs import tensor_batch
from rss_rl.ops.sentence_ends import sentence_ends, sentence_numbers, stop_ids
from rss_rl.policies.rss import RSSModule
from rss_rl.policies.smooth import SmoothPolicy
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import WordReader, keep_first_layers
from rss_rl.results.score import open_with_data
from rss_rl.rollouts.snapshot import Models, autocast

_FUNCTIONS = 48
_SAMPLE = 200
"""Texts from which the variance of the functions is estimated."""
_POOLS = 16
"""Texts whose means stand for all: a policy multiplies states by the mean of their text."""
_WORDS = 2000
"""Words of an update."""
_RATE, _HEAD_RATE, _WARM_UP = 2e-4, 2e-3, 100
_SAVE_EVERY = 100
_CPU = torch.device("cpu")


class Teacher(NamedTuple):
    """A run's models, and its policy without an adapter."""

    models: Models
    policy: SmoothPolicy


class Lesson(NamedTuple):
    """Words of all texts in turn.

    tokens   int64 [n], ids. sentence: int64 [n], ascending
    wanted   float16 [n, 1 + F]: the height, of variance 1, and functions, together of variance 1
    """

    tokens: Tensor
    sentence: Tensor
    wanted: Tensor


class Text(NamedTuple):
    """A text of n words.

    tokens  int64 [1, n]. states: float32 [1, n, H]. valid: bool [1, n], all True
    """

    tokens: Tensor
    states: Tensor
    valid: Tensor

    @classmethod
    def of(cls, split: Split, row: int) -> Text:
        """That of a row."""
        batch = tensor_batch(split.batch([row]), _CPU)
        return cls(batch.tokens[0], cast(list[Tensor], batch.states)[0], batch.valid[0])

    def read_by(self, teacher: Teacher) -> Tensor:
        """What a policy reads of it, without the ends of sentences, [1, n, E]."""
        read = teacher.models.policy_inputs([self.tokens], [self.valid], [self.states])[0]
        return read[..., :-1] if teacher.policy.reads_ends else read


def opened(runs: Sequence[Path]) -> tuple[list[Teacher], Split, Sequence[str]]:
    """The runs' teachers, their training texts, and the words of the ids.

    Raises:
        RssError: a run cannot be read or imitated, or they do not read the same states.
    """
    teachers, states = [], set[str | None]()
    for run in runs:
        config, models, prepared, _ = open_with_data(run, "best", "cpu")
        policy = getattr(models.policy, "inner", models.policy)
        if not (
            isinstance(policy, SmoothPolicy)
            and policy.widths is None
            and all(cast(RSSModule, module).reads_mean_alone for module in policy.heights)
            and config.policy.window == "sentence"
            and prepared.sentences == 1
        ):
            raise ConfigError(
                "is not of a smooth policy (context=none, pool=mean, widths=role) that reads an"
                " encoder sentence by sentence",
                where=str(run),
                remedy="Train one with transformer/movies",
            )
        teachers.append(Teacher(models, policy))
        states.add(prepared.states_digest())
    if len(states) > 1:
        raise ConfigError("do not read the same states", where=" ".join(map(str, runs)))
    return teachers, prepared.split("train"), prepared.vocabulary.words


def principal_functions(teachers: Sequence[Teacher], split: Split) -> Tensor:
    """The F linear functions of states in which those that the policies compute vary most, [F, H].

    With A the matrix of these and C the covariance of states, principal components of A x are rows
    of U^T A, U the first eigenvectors of A C A^T. A has many rows, so they come from those of
    C^(1/2) A^T A C^(1/2), which is [H, H].
    """
    rows = np.random.default_rng(0).permutation(len(split))[:_SAMPLE].tolist()
    texts = [Text.of(split, row) for row in rows]
    covariance = torch.cov(torch.cat([text.states[0] for text in texts]).T)
    product = torch.zeros_like(covariance)  # A^T A
    for teacher in teachers:
        for text in texts[:_POOLS]:
            mean = text.read_by(teacher)[0].mean(0)
            for module in teacher.policy.heights:
                of_token, _, of_product = cast(RSSModule, module).hidden.weight.chunk(3, 1)
                own = (of_token + of_product * mean)[:, -len(product) :]
                product += own.T @ own
    values, axes = torch.linalg.eigh(covariance)
    root = axes * values.clamp_min(0).sqrt() @ axes.T
    variances, axes = torch.linalg.eigh(root @ product @ root)
    found: Tensor = axes[:, -_FUNCTIONS:].T @ root @ product / variances[-_FUNCTIONS:, None].sqrt()
    largest = found.gather(1, found.abs().argmax(1, keepdim=True))
    found *= largest.sign()  # as eigenvectors have no sign of their own
    return found


def lesson(teachers: Sequence[Teacher], split: Split, words: Sequence[str]) -> Lesson:
    """What the teachers make of each word of the texts."""
    functions, stops = principal_functions(teachers, split), stop_ids(words)
    tokens, sentences, heights, others, last = [], [], [], [], 0
    for row in range(len(split)):
        text = Text.of(split, row)
        scores = [t.policy.heights(text.read_by(t), text.valid)[0].mean(0) for t in teachers]
        heights.append(torch.stack([score - score.mean() for score in scores], 1))
        others.append(text.states[0] @ functions.T)
        sentences.append(sentence_numbers(sentence_ends(text.tokens, stops))[0] + last)
        last = int(sentences[-1][-1]) + 1
        tokens.append(text.tokens[0])
    each, other = torch.cat(heights), torch.cat(others)
    height = (each / each.std(0)).mean(1, keepdim=True)
    other -= other.mean(0)
    wanted = torch.cat([height / height.std(), other / other.var(0).sum().sqrt()], 1).half()
    return Lesson(torch.cat(tokens), torch.cat(sentences), wanted)


class Batch(NamedTuple):
    """Sentences of similar length.

    tokens  int64 [n]. sentence: int64 [n], from 0. sentences: how many
    wanted  float32 [n, 1 + F]
    """

    tokens: Tensor
    sentence: Tensor
    sentences: int
    wanted: Tensor


class Batches:
    """The sentences of a lesson in batches of some 2,000 words, in an order of each epoch's own."""

    def __init__(self, taught: Lesson) -> None:
        self._taught = taught
        self._sizes = torch.bincount(taught.sentence).numpy()
        self._starts = self._sizes.cumsum() - self._sizes

    def parts(self, epoch: int) -> list[Any]:
        """The sentences of each batch."""
        draw = np.random.default_rng(epoch)
        order = np.lexsort((draw.random(len(self._sizes)), self._sizes))
        ends = np.diff(self._sizes[order].cumsum() // _WORDS)
        parts = np.split(order, np.flatnonzero(ends) + 1)
        return [parts[place] for place in draw.permutation(len(parts))]

    def batch(self, part: Any) -> Batch:
        """That of some sentences."""
        sizes, taught = self._sizes[part], self._taught
        pairs = zip(self._starts[part], sizes, strict=True)
        at = np.concatenate([np.arange(start, start + size) for start, size in pairs])
        number = torch.from_numpy(np.repeat(np.arange(len(part)), sizes))
        return Batch(taught.tokens[at], number, len(part), taught.wanted[at].float())


def learn(
    taught: Lesson, reader: WordReader, epochs: int, kept: Path, asked: dict[str, Any]
) -> None:
    """Train the reader.

    Args:
        kept: file from which it resumes. asked: what it was begun with.

    Raises:
        ConfigError: it was begun with something else.
    """
    head = nn.Linear(reader.size, taught.wanted.shape[1])
    nn.init.zeros_(head.weight)
    nn.init.zeros_(head.bias)
    groups = [
        {"params": list(reader.parameters()), "lr": _RATE},
        {"params": list(head.parameters()), "lr": _HEAD_RATE},
    ]
    adam = torch.optim.AdamW(groups, weight_decay=0.01)
    batches = Batches(taught)
    parts = [part for epoch in range(epochs) for part in batches.parts(epoch)]
    schedule = torch.optim.lr_scheduler.LambdaLR(
        adam, lambda step: min((step + 1) / _WARM_UP, 1 - step / len(parts))
    )
    learning: dict[str, Any] = {"reader": reader, "head": head, "adam": adam, "rate": schedule}
    done = 0
    if kept.exists():
        saved = torch.load(kept, weights_only=True)
        if saved["asked"] != asked:
            remedy = "Give the arguments that it was begun with, or remove it"
            raise ConfigError("was begun with other arguments", where=str(kept), remedy=remedy)
        for name, part in learning.items():
            part.load_state_dict(saved[name])
        done = saved["done"]
    losses, started = list[float](), time.monotonic()
    reader.train()
    for step, part in enumerate(parts[done:], done + 1):
        torch.manual_seed(step)
        batch = batches.batch(part)
        with autocast(_CPU, "auto"):
            found = head(reader.word_states(batch.tokens, batch.sentence, batch.sentences))
        loss = (found.float() - batch.wanted).square().sum(1).mean()
        adam.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(reader.parameters(), 1.0)
        adam.step()
        schedule.step()
        losses.append(loss.item())
        if step % 50 == 0:
            share, losses = np.mean(losses) / 2, []
            left = (time.monotonic() - started) / (step - done) * (len(parts) - step)
            print(
                f"{step:,} of {len(parts):,} updates: {share:.1%} of the variance unexplained,"
                f" {left / 60:.0f} minutes left",
                flush=True,
            )
        if step % _SAVE_EVERY == 0:
            state = {name: part.state_dict() for name, part in learning.items()}
            with replacing(kept) as temporary:
                torch.save({**state, "done": step, "asked": asked}, temporary)


def save(model: Any, pretrained: Pretrained, layers: int, out: Path) -> None:
    """Write the encoder, its weights last."""
    model.config = copy.deepcopy(pretrained.config)
    model.config.num_hidden_layers = layers
    pretrained.tokenizer.save_pretrained(out)
    model.save_pretrained(out)
    (out / "model.safetensors").chmod(0o644)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="Of `smooth` policies.")
    parser.add_argument("--student", required=True, metavar="FOLDER|NAME", help="A small encoder.")
    parser.add_argument("--layers", type=int, required=True, metavar="N", help="Of it, from below.")
    parser.add_argument("--epochs", type=int, default=2)
    parser.add_argument("--out", type=Path, required=True, metavar="FOLDER")
    given = parser.parse_args()
    kept = given.out / "unfinished.pt"
    if given.epochs < 1 or given.layers < 1:
        parser.error("--epochs and --layers: at least 1")
    if given.out.is_file() or (given.out / "model.safetensors").exists():
        parser.error(f"--out {given.out}: is there already")
    pretrained = open_pretrained(given.student)
    model: Any = pretrained.encoder(0.0)
    keep_first_layers(model, given.layers, pretrained.name)
    teachers, split, words = opened(given.runs)
    given.out.mkdir(parents=True, exist_ok=True)
    with torch.no_grad():
        taught = lesson(teachers, split, words)
    asked = {
        "runs": [str(run.resolve()) for run in given.runs],
        "student": pretrained.digest,
        "layers": given.layers,
        "epochs": given.epochs,
    }
    learn(taught, WordReader(pretrained, model, words), given.epochs, kept, asked)
    save(model, pretrained, given.layers, given.out)
    kept.unlink(missing_ok=True)


if __name__ == "__main__":
    try:
        main()
    except RssError as error:
        sys.exit(f"error: {error}")
    except KeyboardInterrupt:
        sys.exit("stopped; the same command resumes from its last hundredth update")
