"""What hard attention saves: time of the attention by shares kept, and of whole-model inference.

    python tests/benchmarks/bench.py --only selection

Attention: heads and dependents are a share p each of n tokens, drawn at random; its time should be
overhead + p^2 (time of all - their overhead), where the overhead is the time of the same tokens
none of which may look at another, a record of its own. Ours is the time, theirs what it should be:
0.8 or more is within 25%. Forward alone, exact kernel, without padding, as the models call it where
there is a compiler.

Models: inference with sizes 300 of embedded sentences of n tokens, of which the policy selects 30%
in each role: `faithful` (unselected tokens are removed) and `plain` (they stay, but do not
attend) make the policy's probabilities, `all tokens` has no policy and attends to every token.
The selection is drawn at random in place of the policy's, so that the share is what it says.

One thread; CPU time in turns.
"""

from __future__ import annotations

__all__ = ["selection"]

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace

import torch
from lengths import random_selection
from suite.records import Record, compared
from suite.timing import Settings, in_turns, seconds_of

from rss_rl.config import ModelConfig, PolicyConfig
from rss_rl.models.attention_choice import attention_backend
from rss_rl.models.build import build_encoder
from rss_rl.models.encoders.protocol import Encoder, PackedEncoder
from rss_rl.ops.attention import packed_attention
from rss_rl.ops.packing import Packed, PackedPairs, Rows
from rss_rl.policies.build import build_policy

SIZE, SCALE, SHARE = 300, 5.0, 0.3
SHARES = (0.5, 0.3, 0.1)
BATCHES = {64: 32, 256: 8, 1024: 1}
"""Texts by their length in tokens."""
SENTENCES = {16: 64, 24: 64, 32: 64, 64: 32, 128: 16, 256: 4}
LEAST_S = 0.05

Works = Mapping[str, Callable[[], object]]


def attention(texts: int, n: int, share: float, *, looks: bool = True) -> Callable[[], object]:
    """Of some heads to some dependents; without `looks` these stand where no head may look."""
    selection = random_selection(texts, n, share)
    heads, dependents = (Packed.of([selection[:, role]]) for role in (0, 1))
    if not looks:
        dependents = replace(dependents, position=dependents.position + n)
    scores, shown = torch.randn(len(heads), SIZE), torch.randn(len(dependents), SIZE)
    pairs = PackedPairs(heads, dependents, "before")

    @torch.inference_mode()
    def work() -> object:
        return packed_attention(scores, shown, shown, pairs, SCALE)

    return work


def models(sentences: int, n: int) -> Works:
    """Inference of the three models, on the same sentences."""
    torch.manual_seed(n)
    faithful, plain = (
        build_encoder(
            ModelConfig(
                hidden=SIZE, encoder={"name": "resan", "options": {"keep_unselected": keep}}
            ),
            SIZE,
        ).eval()
        for keep in (False, True)
    )
    policy = build_policy(PolicyConfig(options={"hidden": SIZE}), SIZE, "elu").eval()
    embedded = torch.randn(sentences, n, SIZE)
    valid = torch.ones(sentences, n, dtype=torch.bool)
    some, everything = random_selection(sentences, n, SHARE), valid[:, None].expand(-1, 2, -1)

    def encoded(encoder: Encoder, selection: torch.Tensor) -> object:
        """As a classifier does it."""
        assert isinstance(encoder, PackedEncoder)
        shown = valid if encoder.reads_unselected else selection.any(1)
        roles = selection.transpose(1, 2)[shown][None]
        return encoder.packed(Rows(embedded[shown]), Packed.of([shown]), roles)

    @torch.inference_mode()
    def of_faithful() -> object:
        _ = policy(embedded, valid).mode
        return encoded(faithful, some)

    @torch.inference_mode()
    def of_plain() -> object:
        _ = policy(embedded, valid).mode
        return encoded(plain, some)

    @torch.inference_mode()
    def of_all() -> object:
        return encoded(faithful, everything)

    return {"all tokens": of_all, "faithful": of_faithful, "plain": of_plain}


def milliseconds(works: Works, repeats: int) -> dict[str, list[float]]:
    """CPU time of a run of each, in turns, over as many runs as the clock can tell."""
    turns = {
        name: lambda work=work: 1000 * seconds_of(work, "cpu", least_s=LEAST_S)
        for name, work in works.items()
    }
    return in_turns(turns, repeats)


def attention_records(n: int, texts: int, repeats: int) -> Iterator[Record]:
    """What was expected over what was measured, for each share; the overhead over the whole."""
    works: dict[str, Callable[[], object]] = {}
    for share in (*SHARES, 1.0):
        works[f"{share:.0%}"] = attention(texts, n, share)
        works[f"{share:.0%} alone"] = attention(texts, n, share, looks=False)
    found = milliseconds(works, repeats)
    whole, tokens = found["100%"], found["100% alone"]
    room = f"selection/attention, n={n}"
    for share in SHARES:
        overhead, name = found[f"{share:.0%} alone"], f"{room}, p=q={share:.0%}"
        yield compared(f"{name}, overhead v. all tokens and pairs", overhead, whole, "ms")
        expected = [o + share**2 * (w - t) for o, w, t in zip(overhead, whole, tokens, strict=True)]
        yield compared(f"{name} v. overhead + pq", found[f"{share:.0%}"], expected, "ms")


def model_records(n: int, sentences: int, repeats: int) -> Iterator[Record]:
    """The selective models beside that of all tokens."""
    found = milliseconds(models(sentences, n), repeats)
    for name in ("faithful", "plain"):
        called = f"selection/inference, n={n}, {name} at {SHARE:.0%} v. all tokens"
        yield compared(called, found[name], found["all tokens"], "ms")


def selection(settings: Settings) -> Iterator[Record]:
    """A benchmark of `bench.py`.

    Raises:
        ConfigError: there is no compiler for the kernels.
    """
    attention_backend("compiled")
    torch.set_num_threads(1)
    torch.manual_seed(0)
    for n, texts in BATCHES.items():
        yield from attention_records(n, texts, settings.repeats)
    for n, sentences in SENTENCES.items():
        yield from model_records(n, sentences, settings.repeats)
