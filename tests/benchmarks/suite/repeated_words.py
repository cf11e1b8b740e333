"""What it saves in inference that a word of a batch is mapped once, however often it stands there.

Ours is the encoder of the words and of which of them each token is, theirs the same of a vector for
each token. Lengths and words are drawn as for the training step, selections at random, a share of
the tokens in each role. One thread; CPU time in turns.
"""

from __future__ import annotations

__all__ = ["repeated_words"]

from collections.abc import Callable, Iterator

import numpy as np
import torch

from rss_rl.config import ModelConfig
from rss_rl.models.attention_choice import attention_backend
from rss_rl.models.build import build_encoder
from rss_rl.models.embedding import WordEmbedding
from rss_rl.models.encoders.protocol import PackedEncoder
from rss_rl.ops.packing import Packed, Rows
from suite.records import Record, compared
from suite.timing import Settings, in_turns, seconds_of
from suite.training_step import HIDDEN, SIZES, Size, words_of

SENTENCES = (64, 512)
"""Of a batch."""
FORMS = {"all tokens": (True, 1.0), "plain at 30%": (True, 0.3), "faithful at 30%": (False, 0.3)}
"""Whether unselected tokens stay, and the share that is selected."""
LEAST_S = 0.05


def works(
    size: Size, sentences: int, keep_unselected: bool, share: float
) -> tuple[Callable[[], object], Callable[[], object]]:
    """Inference of one batch, each word mapped once and each token mapped."""
    draw = np.random.default_rng(0)
    lengths = size.lengths().reshape(-1)[:sentences]
    real = torch.from_numpy(np.arange(lengths.max()) < lengths[:, None])
    ids = torch.from_numpy(words_of(size, tuple(real.shape), draw))
    roles = torch.from_numpy(draw.random((*real.shape, 2)) < share)
    torch.manual_seed(0)
    resan = {"name": "resan", "options": {"keep_unselected": keep_unselected}}
    encoder = build_encoder(ModelConfig(encoder=resan, hidden=HIDDEN), HIDDEN)
    encoder.eval()
    vectors = draw.normal(size=(size.words, HIDDEN)).astype(np.float32)
    embedding = WordEmbedding(vectors, size.words).eval()
    assert isinstance(encoder, PackedEncoder)
    shown = real if encoder.reads_unselected else real & roles.any(-1)
    tokens, read, chosen = Packed.of([shown]), ids[shown], roles[shown][None]

    @torch.inference_mode()
    def once() -> object:
        return encoder.packed(embedding.rows(read, once=True), tokens, chosen)

    @torch.inference_mode()
    def each() -> object:
        return encoder.packed(Rows(embedding(read)), tokens, chosen)

    return once, each


def repeated_words(settings: Settings) -> Iterator[Record]:
    """Milliseconds of a batch, by dataset, form and size.

    Raises:
        ConfigError: there is no compiler for the kernels.
    """
    attention_backend("compiled")
    torch.set_num_threads(1)
    for name, size in SIZES.items():
        for form, (keep_unselected, share) in FORMS.items():
            for sentences in SENTENCES:
                pair = works(size, sentences, keep_unselected, share)
                turns = {
                    who: lambda work=work: 1000 * seconds_of(work, "cpu", least_s=LEAST_S)
                    for who, work in zip(("ours", "theirs"), pair, strict=True)
                }
                found = in_turns(turns, settings.repeats)
                called = f"words/{name}, {form}, {sentences} sentences"
                yield compared(called, found["ours"], found["theirs"], "ms")
