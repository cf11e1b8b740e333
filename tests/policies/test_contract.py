"""Every built-in policy keeps the contract, and each planted fault is found and named."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import small
import torch
from torch import Tensor, nn

from rss_rl.components import Component, component_names, find_component
from rss_rl.errors import ConfigError, PolicyError
from rss_rl.policies.adapters import adapt
from rss_rl.policies.protocol import Evaluated, PolicySetup, Sampled
from rss_rl.policies.rss import RSSOptions, RSSPolicy
from rss_rl.testing import check_policy

VARIANTS: dict[str, dict[str, Any]] = {
    "rss shared": {"shared": True},
    "rss over gru": {"context": "gru"},
    "rss over conv": {"context": "conv", "pool": "learnt"},
    "rss, even shares": {"options": {"even": True}},
    "hardkuma shared": {"name": "hardkuma", "shared": True, "options": {"low": -0.3, "high": 1.2}},
    "top-k share": {"name": "top-k", "shared": True, "options": {"share": 0.4}},
    "smooth within sentences": {"name": "smooth", "within": "sentence"},
}


@pytest.mark.parametrize("name", component_names("policy"))
def test_built_in_components_keep_the_contract(name: str) -> None:
    options = {"tokens": 2} if name == "top-k" else {}
    check_policy(find_component("policy", name), small.EMBEDDING, options)


@pytest.mark.parametrize("settings", VARIANTS.values(), ids=VARIANTS)
def test_their_options_keep_the_contract(settings: dict[str, Any]) -> None:
    check_policy(small.policy(double=False, **settings), small.EMBEDDING)


def test_one_bit_for_roles_that_differ_is_found() -> None:
    policy = small.policy(double=False)
    policy.bits_per_token = 1
    with pytest.raises(PolicyError, match="heads that sample selects differ"):
        check_policy(policy, small.EMBEDDING)


class Faulty(nn.Module):
    """An RSS policy of which one method is replaced."""

    def __init__(self, method: str, instead: Callable[..., Any]) -> None:
        super().__init__()
        self.inner = small.policy(double=False)
        self._method, self._instead = method, instead

    def _call(self, name: str, *arguments: Tensor) -> Any:
        right = getattr(self.inner, name)(*arguments)
        return self._instead(right, *arguments) if name == self._method else right

    def sample(self, *arguments: Tensor) -> Sampled:
        return self._call("sample", *arguments)  # type: ignore[no-any-return]

    def evaluate(self, *arguments: Tensor) -> Evaluated:
        return self._call("evaluate", *arguments)  # type: ignore[no-any-return]

    def probabilities(self, *arguments: Tensor) -> Tensor:
        return self._call("probabilities", *arguments)  # type: ignore[no-any-return]

    def threshold(self, *arguments: Tensor) -> Tensor:
        return self._call("threshold", *arguments)  # type: ignore[no-any-return]

    def logits(self, *arguments: Tensor) -> Tensor:
        return self._call("logits", *arguments)  # type: ignore[no-any-return]

    def gates(self, *arguments: Tensor) -> Tensor:
        return self._call("gates", *arguments)  # type: ignore[no-any-return]


def padded_mean(right: Tensor, shown: Tensor, valid: Tensor) -> Tensor:
    """The fault: a token is compared with how long the padded sentence is."""
    score = shown.sum(-1) - 0.5 * valid.shape[1]
    return (score > 0)[:, None].expand(-1, 2, -1) & valid[:, None]


def selects_padding(right: Sampled, *_: Tensor) -> Sampled:
    return Sampled(torch.ones_like(right.selection), right.log_prob)


def random_bits(right: Sampled, shown: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
    return Sampled((torch.rand_like(uniforms) < 0.5) & valid[:, None], right.log_prob)


def half(right: Sampled, *_: Tensor) -> Sampled:
    return Sampled(right.selection, right.log_prob / 2)


def half_of_both(right: Any, *_: Tensor) -> Any:
    return right._replace(log_prob=right.log_prob / 2)


class HalfAsLikely(Faulty):
    """Consistent with itself and wrong."""

    def __init__(self) -> None:
        super().__init__("", half)

    def _call(self, name: str, *arguments: Tensor) -> Any:
        right = getattr(self.inner, name)(*arguments)
        return half_of_both(right) if name in ("sample", "evaluate") else right


def negated(right: Sampled, shown: Tensor, valid: Tensor, uniforms: Tensor) -> Sampled:
    return Sampled(~right.selection & valid[:, None], right.log_prob)


FAULTS: dict[str, tuple[str, Callable[..., Any], str]] = {
    "padding": ("sample", selects_padding, "sample on padding is not 0"),
    "own randomness": ("sample", random_bits, "differs between two calls"),
    "half the log-prob": ("sample", half, "log_prob differs from that of sample"),
    "numbers for bits": ("threshold", lambda right, *_: right.float(), "threshold is no bool"),
    "one role": ("threshold", lambda right, *_: right[:, 0], "has the shape"),
    "padded mean": ("threshold", padded_mean, "depends on the padding"),
    "padded gates": (
        "gates",
        lambda right, *_: right / (1 + 0.1 * right.shape[-1]),
        "gates .* depends on the padding",
    ),
    "other bits": ("logits", lambda right, *_: right + 1, "uniform < sigmoid"),
    "gates leave 1": ("gates", lambda right, *_: right * 1.5, r"leave \[0, 1\]"),
    "detached": (
        "evaluate",
        lambda right, *_: Evaluated(right.log_prob.detach(), right.entropy.detach()),
        "no gradient",
    ),
}


@pytest.mark.parametrize(("method", "instead", "message"), FAULTS.values(), ids=FAULTS)
def test_a_planted_fault_is_found_and_named(
    method: str, instead: Callable[..., Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message) as caught:
        check_policy(Faulty(method, instead), small.EMBEDDING)
    assert caught.value.where == "Faulty"
    assert caught.value.remedy


def nothing_divided(right: Evaluated, shown: Tensor, valid: Tensor, _: Tensor) -> Evaluated:
    """The fault: a mean over no token, in a batch where no sentence has one."""
    entropy = right.entropy if valid.any() else right.entropy / valid.sum()
    return Evaluated(right.log_prob, entropy)


def nothing_rooted(right: Evaluated, shown: Tensor, valid: Tensor, _: Tensor) -> Evaluated:
    """The fault: a root whose slope at 0 is infinite."""
    entropy = right.entropy if valid.any() else right.entropy.sqrt()
    return Evaluated(right.log_prob, entropy)


def nothing_compared(right: Any, shown: Tensor, *_: Tensor) -> Any:
    """The fault: it looks for the longest of no sentences."""
    return right if len(shown) else shown.flatten(1).max(0) and right


def nothing_dropped(right: Tensor, shown: Tensor, *_: Tensor) -> Tensor:
    """The fault: without a sentence the rest of the shape is lost."""
    return right if len(shown) else right.flatten()


EMPTY: dict[str, tuple[str, Callable[..., Any], str]] = {
    "entropy": (
        "evaluate",
        nothing_divided,
        "entropy of a sentence of 0 tokens depends on the padding",
    ),
    "gradient": ("evaluate", nothing_rooted, "entropy of .* gradient that is not finite"),
    "evaluate": ("evaluate", nothing_compared, "a batch without a sentence: max"),
    "threshold": ("threshold", nothing_dropped, "threshold of a batch without .* shape"),
}


@pytest.mark.parametrize(("method", "instead", "message"), EMPTY.values(), ids=EMPTY)
def test_a_fault_on_nothing_is_found_in_every_method(
    method: str, instead: Callable[..., Any], message: str
) -> None:
    with pytest.raises(PolicyError, match=message):
        check_policy(Faulty(method, instead), small.EMBEDDING)


def test_a_log_prob_that_agrees_with_itself_alone_is_found() -> None:
    with pytest.raises(PolicyError, match="frequency"):
        check_policy(HalfAsLikely(), small.EMBEDDING)


def test_what_cannot_be_pickled_is_found() -> None:
    policy = RSSPolicy(PolicySetup(small.EMBEDDING, "relu"), RSSOptions(hidden=4))
    policy.extra = lambda: 0  # type: ignore[assignment]
    with pytest.raises(PolicyError, match="pickled"):
        check_policy(policy, small.EMBEDDING)


class Unready(nn.Module):
    pass


def test_what_is_no_policy_is_refused() -> None:
    with pytest.raises(ConfigError, match="no method `threshold`"):
        check_policy(Unready(), small.EMBEDDING)
    with pytest.raises(ConfigError, match="not a torch module"):
        check_policy(object(), small.EMBEDDING)  # type: ignore[arg-type]


class FirstWord(nn.Module):
    """The least a policy can be."""

    def threshold(self, shown: Tensor, valid: Tensor) -> Tensor:
        first = valid & (torch.arange(valid.shape[1]) == 0)
        return first[:, None].expand(-1, 2, -1)


def test_a_policy_that_only_thresholds_is_enough() -> None:
    check_policy(FirstWord(), small.EMBEDDING)


class Explorer(nn.Module):
    """The fault: a parameter that the entropy alone knows, or that has no slope where it is."""

    def __init__(self, power: float, known: float) -> None:
        super().__init__()
        self.inner = small.policy(double=False)
        self.extra = nn.Parameter(torch.zeros(()))
        self._power, self._known = power, known

    def __getattr__(self, name: str) -> Any:
        offered = name in ("sample", "threshold", "probabilities")
        return getattr(self.inner, name) if offered else super().__getattr__(name)

    def evaluate(self, embedded: Tensor, valid: Tensor, selection: Tensor) -> Evaluated:
        """See `StochasticPolicy`."""
        right = self.inner.evaluate(embedded, valid, selection)
        log_prob = right.log_prob + self._known * self.extra if self._known else right.log_prob
        return Evaluated(log_prob * valid[:, None], right.entropy + self.extra**self._power)


@pytest.mark.parametrize(
    ("power", "known", "message"),
    [
        (1.0, 0.0, "evaluate's log_prob gives no finite gradient to 'extra'"),
        (0.5, 1.0, "evaluate's log_prob and entropy gives no finite gradient to 'extra'"),
    ],
)
def test_what_the_entropy_alone_teaches_is_found(power: float, known: float, message: str) -> None:
    with pytest.raises(PolicyError, match=message):
        check_policy(Explorer(power, known), small.EMBEDDING)


class LastScore(nn.Module):
    """Deterministic, with parameters that were learnt elsewhere."""

    def __init__(self) -> None:
        super().__init__()
        self.score = nn.Linear(small.EMBEDDING, 1)

    def threshold(self, shown: Tensor, valid: Tensor) -> Tensor:
        kept = (self.score(shown).squeeze(-1) > 0) & valid
        return kept[:, None].expand(-1, 2, -1)


def test_a_deterministic_policy_may_have_parameters() -> None:
    check_policy(LastScore(), small.EMBEDDING)


class Scorer(nn.Module):
    """Logits, and nothing else."""

    def __init__(self, inputs: int, roles: int = 2, drop: float = 0.0) -> None:
        super().__init__()
        self.score = nn.Linear(inputs, roles)
        self.dropout = nn.Dropout(drop)

    def logits(self, shown: Tensor, valid: Tensor) -> Tensor:
        return self.score(self.dropout(shown)).transpose(1, 2)


def component(
    build: Callable[..., Any] = lambda setup, options: Scorer(setup.inputs),
    *capabilities: str,
) -> Component:
    return Component(
        kind="policy",
        name="mine",
        help="A policy of one's own.",
        build=build,
        capabilities=frozenset(capabilities or ("learns", "logits", "share")),
    )


@pytest.mark.parametrize("roles", [1, 2])
def test_logits_are_enough(roles: int) -> None:
    check_policy(Scorer(small.EMBEDDING, roles), small.EMBEDDING)
    check_policy(component(lambda setup, options: Scorer(setup.inputs, roles)), small.EMBEDDING)


def test_what_follows_from_logits_is_what_rss_does() -> None:
    """The same logits through the adapter and through methods that were written out."""
    rss = small.policy(double=False)

    class Borrowed(nn.Module):
        def logits(self, shown: Tensor, valid: Tensor) -> Tensor:
            return rss.logits(shown, valid)  # type: ignore[no-any-return, operator]

    whole = adapt(Borrowed())
    draw = torch.Generator().manual_seed(3)
    valid = torch.arange(4) < torch.tensor([4, 2])[:, None]
    shown = torch.randn(2, 4, small.EMBEDDING, generator=draw) * valid[..., None]
    drawn, same = (
        policy.sample(shown, valid, torch.rand(3, 2, 2, 4, generator=draw.manual_seed(1)))
        for policy in (rss, whole)
    )
    assert torch.equal(drawn.selection, same.selection)
    mine, other = (policy.evaluate(shown, valid, drawn.selection) for policy in (rss, whole))
    torch.testing.assert_close(mine, other)
    for name in ("threshold", "probabilities"):
        torch.testing.assert_close(*(getattr(p, name)(shown, valid) for p in (rss, whole)))


def without(missing: str) -> nn.Module:
    """A policy with all methods of RSS but one."""
    whole = RSSPolicy(PolicySetup(small.EMBEDDING, "relu"), RSSOptions(hidden=4))
    bodies: dict[str, Any] = {
        name: lambda self, *given, name=name: getattr(whole, name)(*given)
        for name in {"sample", "evaluate", "probabilities", "threshold", "gates"} - {missing}
    }
    return type("Incomplete", (nn.Module,), bodies)()  # type: ignore[no-any-return]


@pytest.mark.parametrize("missing", ["sample", "evaluate", "probabilities", "threshold"])
def test_a_method_that_is_missing_is_named(missing: str) -> None:
    with pytest.raises(ConfigError, match=f"no method `{missing}`"):
        check_policy(without(missing), small.EMBEDDING)


@pytest.mark.parametrize(
    ("capabilities", "message"),
    [
        (("learns", "logits", "gates"), "no method `gates`"),
        (("learns",), "has `logits`, and its component does not declare logits"),
    ],
)
def test_what_is_declared_is_what_there_is(capabilities: tuple[str, ...], message: str) -> None:
    declared = component(lambda setup, options: Scorer(setup.inputs), *capabilities)
    with pytest.raises(ConfigError, match=message):
        check_policy(declared, small.EMBEDDING)


def test_another_rule_than_one_half_is_no_share() -> None:
    class Third(Scorer):
        def threshold(self, shown: Tensor, valid: Tensor) -> Tensor:
            return (torch.sigmoid(self.logits(shown, valid)) > 1 / 3) & valid[:, None]

    with pytest.raises(PolicyError, match="probability over one half"):
        check_policy(component(lambda setup, options: Third(setup.inputs)), small.EMBEDDING)


class Normalised(Scorer):
    def __init__(self) -> None:
        super().__init__(small.EMBEDDING)
        self.norm = nn.BatchNorm1d(small.EMBEDDING)

    def logits(self, shown: Tensor, valid: Tensor) -> Tensor:
        if not shown.numel():
            return self.score(shown).transpose(1, 2)
        return self.score(self.norm(shown.transpose(1, 2)).transpose(1, 2)).transpose(1, 2)


def test_statistics_that_samplers_never_see_are_found() -> None:
    with pytest.raises(PolicyError, match="buffer 'inner.norm.running_mean' changes"):
        check_policy(Normalised(), small.EMBEDDING)


class Projected(Scorer):
    def __init__(self, inputs: int) -> None:
        super().__init__(inputs)
        self.projection = torch.randn(inputs, inputs)  # the fault: no buffer

    def logits(self, shown: Tensor, valid: Tensor) -> Tensor:
        return super().logits(shown @ self.projection, valid)


def test_what_is_drawn_when_built_and_not_saved_is_found() -> None:
    with pytest.raises(PolicyError, match="newly built copy with its state"):
        check_policy(component(lambda setup, options: Projected(setup.inputs)), small.EMBEDDING)


def test_dropout_acts_while_learning_alone() -> None:
    policy = Scorer(small.EMBEDDING, drop=0.5)
    check_policy(policy, small.EMBEDDING)
    assert policy.training
