"""Logits of selectors by kernels, against the formula with all three parts side by side."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

from rss_rl.ops import selectors as module
from rss_rl.ops.compilers import missing_compiler
from rss_rl.ops.matmul import matmul
from rss_rl.ops.selectors import Selector, has_selectors, selector_logits

pytestmark = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))


@pytest.fixture(scope="module", autouse=True, params=[64, 0], ids=["pairs", "by sentence"])
def long(request: pytest.FixtureRequest) -> Iterator[None]:
    """Sentences here are short: by pairs [x, x * mean], and by weights for each sentence."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(module, "_LONG", request.param)
        yield


Sizes = tuple[int, int, int, int, int]
"""B, N, E, R, D."""


def drawn(
    sizes: Sizes, seed: int = 0, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, list[Selector]]:
    """Tokens, not zero on padding, which is anywhere; and selectors."""
    sentences, width, features, count, hidden = sizes
    generator = torch.Generator().manual_seed(seed)

    def normal(*shape: int) -> Tensor:
        return torch.randn(shape, generator=generator, dtype=torch.float64).to(dtype)

    # Neither is contiguous.
    valid = (torch.rand(sentences, 2 * width, generator=generator) < 0.7)[:, ::2]
    valid[:1] = False  # a sentence without tokens
    tokens = normal(width, sentences, features).transpose(0, 1)
    shapes = (hidden, 3 * features), (hidden,), (1, hidden), (1,)
    selectors = [
        Selector(*((0.3 * normal(*shape)).requires_grad_() for shape in shapes))
        for _ in range(count)
    ]
    return tokens, valid, selectors


def by_formula(tokens: Tensor, valid: Tensor, selectors: list[Selector], name: str) -> Tensor:
    """Sentence by sentence, of its real tokens alone; [B, R, N]."""
    result = tokens.new_zeros(len(tokens), len(selectors), tokens.shape[1])
    for b, real in enumerate(valid):
        words = tokens[b, real]
        if not len(words):
            continue
        mean = words.mean(0).expand_as(words)
        whole = torch.cat([words, mean, words * mean], -1)
        for r, given_ in enumerate(selectors):
            features = getattr(F, name)(F.linear(whole, given_.hidden, given_.hidden_bias))
            logits = F.linear(features, given_.last, given_.last_bias)[:, 0]
            result = result.index_put(
                (torch.tensor(b), torch.tensor(r), real.nonzero()[:, 0]), logits
            )
    return result


def gradients(logits: Tensor, selectors: list[Selector]) -> list[Tensor]:
    """Of a sum in which every logit, padding's too, has a factor of its own."""
    factors = torch.linspace(-1.0, 2.0, logits.numel()).view(logits.mT.shape).to(logits.dtype).mT
    leaves = [tensor for selector in selectors for tensor in selector]
    return list(torch.autograd.grad((factors * logits).sum(), leaves, materialize_grads=True))


@given(
    sizes=st.tuples(
        st.integers(0, 9),
        st.integers(0, 9),
        st.sampled_from([1, 7, 16, 33]),
        st.integers(1, 4),
        st.sampled_from([1, 8, 15, 16, 17, 40]),
    ),
    name=st.sampled_from(["relu", "elu"]),
    dtype=st.sampled_from([torch.float32, torch.float64]),
    seed=st.integers(0, 10**6),
)
def test_logits_and_gradients_are_those_of_the_formula(
    sizes: Sizes, name: str, dtype: torch.dtype, seed: int
) -> None:
    tokens, valid, exact = drawn(sizes, seed)
    selectors = [
        Selector(*(tensor.detach().to(dtype).requires_grad_() for tensor in selector))
        for selector in exact
    ]
    found = selector_logits(tokens.to(dtype), valid, selectors, name)
    expected = by_formula(tokens, valid, exact, name)
    assert found.dtype == dtype
    assert not found.detach()[~valid[:, None].expand_as(found)].any()
    tolerance = 1e-10 if dtype == torch.float64 else 2e-5
    pairs = [(found, expected)]
    if valid.any():  # the formula needs none of the parameters otherwise
        pairs.extend(zip(gradients(found, selectors), gradients(expected, exact), strict=True))
    else:
        assert not any(gradient.any() for gradient in gradients(found, selectors))
    for ours, theirs in pairs:
        torch.testing.assert_close(ours.double(), theirs, rtol=tolerance, atol=10 * tolerance)


@pytest.mark.parametrize("name", ["relu", "elu"])
def test_gradcheck(name: str) -> None:
    tokens, valid, selectors = drawn((3, 4, 5, 2, 3))
    leaves = [tensor for selector in selectors for tensor in selector]

    def logits(*given_: Tensor) -> Tensor:
        return selector_logits(tokens, valid, [Selector(*given_[:4]), Selector(*given_[4:])], name)

    assert torch.autograd.gradcheck(logits, leaves)


@pytest.mark.parametrize("sizes", [(40, 9, 64, 2, 48), (40, 9, 33, 3, 17), (40, 9, 7, 1, 1)])
def test_under_autocast_products_alone_are_rounded(sizes: Sizes) -> None:
    tokens, valid, selectors = drawn(sizes, dtype=torch.float32)
    with torch.autocast("cpu", torch.bfloat16):
        found = selector_logits(tokens, valid, selectors, "elu")
    assert found.dtype == torch.float32
    expected = by_formula(tokens, valid, selectors, "elu")
    assert 1e-4 < (found - expected).abs().max() / expected.std() < 0.05
    pairs = zip(gradients(found, selectors), gradients(expected, selectors), strict=True)
    for ours, theirs in pairs:
        assert ours.dtype == torch.float32
        assert (ours - theirs).norm() < 0.02 * theirs.norm()


@pytest.mark.parametrize("frozen", [0, 1])
def test_a_frozen_part_gets_no_gradient(frozen: int) -> None:
    tokens, valid, selectors = drawn((5, 6, 4, 2, 3))
    expected = gradients(by_formula(tokens, valid, selectors, "elu"), selectors)
    for selector in selectors:
        selector[frozen].requires_grad_(False)
    logits = selector_logits(tokens, valid, selectors, "elu")
    leaves = [tensor for selector in selectors for tensor in selector]
    learnt = [leaf for leaf in leaves if leaf.requires_grad]
    factors = torch.linspace(-1.0, 2.0, logits.numel()).view(logits.mT.shape).to(logits.dtype).mT
    found = torch.autograd.grad((factors * logits).sum(), learnt)
    assert len(found) == 6
    wanted = [g for g, leaf in zip(expected, leaves, strict=True) if leaf.requires_grad]
    for ours, theirs in zip(found, wanted, strict=True):
        torch.testing.assert_close(ours, theirs)


def test_a_sentence_has_the_same_logits_among_others_and_however_wide_it_is() -> None:
    tokens, valid, selectors = drawn((50, 12, 32, 2, 16), dtype=torch.float32)
    whole = selector_logits(tokens, valid, selectors, "relu")
    for first in range(0, 50, 7):
        places = slice(first, first + 2)
        width = 1 + int(valid[places].nonzero()[:, 1].max())
        some = selector_logits(tokens[places, :width], valid[places, :width], selectors, "relu")
        torch.testing.assert_close(whole[places, :, :width], some, rtol=1e-5, atol=1e-5)


def test_threads_change_no_bit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of what the kernels compute; a product's bits are its library's."""

    def on_one_thread(left: Tensor, right: Tensor) -> Tensor:
        threads = torch.get_num_threads()
        torch.set_num_threads(1)
        try:
            return matmul(left, right)
        finally:
            torch.set_num_threads(threads)

    monkeypatch.setattr(module, "matmul", on_one_thread)
    tokens, valid, selectors = drawn((300, 30, 64, 2, 48), dtype=torch.float32)
    before, found = torch.get_num_threads(), []
    try:
        for threads in (1, 2):
            torch.set_num_threads(threads)
            logits = selector_logits(tokens, valid, selectors, "elu")
            found.append([logits, *gradients(logits, selectors)[2:4]])  # no product's sums
    finally:
        torch.set_num_threads(before)
    assert all(map(torch.equal, *found))


def test_nan_stays_nan() -> None:
    tokens, valid, selectors = drawn((3, 4, 5, 1, 3))
    valid[1] = True
    tokens[1, 2, 0] = torch.nan
    found = selector_logits(tokens, valid, selectors, "relu")
    assert found[1].isnan().all()  # by the mean
    assert found[[0, 2]].isfinite().all()


def test_padding_is_not_read() -> None:
    tokens, valid, selectors = drawn((5, 6, 4, 2, 3))
    found = selector_logits(tokens, valid, selectors, "elu")
    tokens[~valid] = torch.nan
    assert torch.equal(found, selector_logits(tokens, valid, selectors, "elu"))


@pytest.mark.parametrize(
    "wrong", ["valid's shape", "valid's type", "one selector", "tokens' type", "a gradient"]
)
def test_what_does_not_fit(wrong: str) -> None:
    tokens, valid, selectors = drawn((3, 4, 5, 2, 3))
    if wrong == "valid's shape":
        valid = valid[:, 1:]
    elif wrong == "valid's type":
        valid = valid.to(torch.uint8)
    elif wrong == "one selector":
        selectors[1] = selectors[1]._replace(last=torch.ones(1, 4, dtype=torch.float64))
    elif wrong == "tokens' type":
        tokens = tokens.float()
    else:
        tokens.requires_grad_()
    with pytest.raises(ValueError, match="do not fit"):
        selector_logits(tokens, valid, selectors, "elu")


def test_long_sentences_have_weights_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_LONG", 64)
    tokens, valid, selectors = drawn((4, 200, 16, 2, 8), dtype=torch.float32)
    rows: list[int] = []
    kernel = module.operators.selector_rows

    def seen(*given: Tensor) -> None:
        rows.append(given[3].shape[1])
        kernel(*given)

    monkeypatch.setattr(module.operators, "selector_rows", seen)
    found = selector_logits(tokens, valid, selectors, "elu")
    expected = by_formula(tokens, valid, selectors, "elu")
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)
    selector_logits(tokens[:, :20], valid[:, :20], selectors, "elu")
    with torch.autocast("cpu", torch.bfloat16):
        selector_logits(tokens, valid, selectors, "elu")
    assert rows == [16, 32, 32]


def test_where_there_are_kernels() -> None:
    tokens, _, selectors = drawn((2, 3, 4, 2, 3))
    assert has_selectors(tokens, selectors, "compiled")
    assert not has_selectors(tokens, selectors, "eager")
    assert not has_selectors(tokens.float(), selectors, "compiled")
    assert not has_selectors(tokens.half(), selectors, "compiled")
    assert not has_selectors(tokens.requires_grad_(), selectors, "compiled")
