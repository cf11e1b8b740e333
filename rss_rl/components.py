"""Components: what can be plugged into a run, and how it is found.

A policy, policy update, encoder, classifier, reward model, source or logger is one declared object:

    SPARSEMAX = Component(
        kind="policy",
        name="sparsemax",
        help="Keeps what sparsemax gives weight.",
        build=lambda setup, options: SparsemaxPolicy(setup.features, options.hidden),
        options=SparsemaxOptions,
        capabilities=frozenset({"gates"}),
        source="Martins and Astudillo, ICML 2016",
    )

A configuration names it by an entry point in the group of its kind (`rss_rl.policies`, ...), as for
rss-rl's own components, or as `package.module:OBJECT`. The latter imports arbitrary code, so it is
resolved only for names that the user gave, not for those read from a run, an export or a storage
path: see `Trust`. Classifiers are rss-rl's own alone.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, ValidationError
from pydantic_core import ErrorDetails

from rss_rl.errors import ConfigError, nearest
from rss_rl.version import VERSION

Kind = Literal[
    "policy", "policy_update", "encoder", "classifier", "reward_model", "source", "logger"
]


@dataclass(frozen=True)
class _KindSpec:
    """Properties of a kind of component.

    plural        names the entry-point group, `rss_rl.<plural>`, and the kind on the command line
    slot          the key of a configuration that names one; for sources, the command
    capabilities  those that one may declare, with their meanings
    of_function   package.module:FUNCTION that makes a component from a plain function and its name
    """

    plural: str
    slot: str
    capabilities: Mapping[str, str]
    of_function: str = ""

    @property
    def group(self) -> str:
        return f"rss_rl.{self.plural}"


_OF_LABELS = {
    "classes": "labels that are classes",
    "score": "labels that are real numbers",
    "sentence": "labels that are a sentence of the passage",
    "candidate": "labels that are a candidate answer of the passage",
}
KINDS: Mapping[Kind, _KindSpec] = {
    "policy": _KindSpec(
        "policies",
        "policy",
        {
            "learns": "has parameters that a phase with policy: true trains",
            "log_probs": "its distribution has log-probs: it can learn from rewards",
            "gates": "its distribution has gates (`rsample`): it can learn through them",
            "gates_first": "learns through its gates where no policy update is named",
            "share": "keeps tokens with probability, or `steered`, over 0.5: takes a target share",
            "budget": "keeps the share that its option `share` gives",
            "random": "keeps each token with the probability that its option `probability` gives:"
            " the floor of comparisons",
        },
    ),
    "policy_update": _KindSpec(
        "policy_updates",
        "learner.policy_update",
        {
            "log_probs": "weighs log-probs by rewards; needs a policy with log_probs",
            "gates": "through the gates, without samplers; needs policy and encoder with gates",
            "multiple_selections": "compares an example's selections: sampler.selections >= 2",
            "lag": "is valid for selections that an older policy drew",
            "thresholded": "needs the rewards of the thresholded selections, too",
            "bits": "needs log-probs of single bits for selections that an older policy drew",
            "antithetic": "selections in pairs, the second drawn from 1 - u where the first is from"
            " u: sampler.selections must be even",
        },
    ),
    "encoder": _KindSpec(
        "encoders",
        "model.encoder",
        {
            "gates": "takes gates in place of a selection",
            "kept_only": "the sentence vector depends on selected tokens only (faithful)",
            "kernels": "pools or attends feature-wise, for which there are compiled kernels",
            "feature_attention": "attends feature-wise between tokens: slow without kernels",
        },
    ),
    "classifier": _KindSpec(
        "classifiers",
        "model.classifier",
        _OF_LABELS,
    ),
    "reward_model": _KindSpec(
        "reward_models",
        "reward.model",
        {
            "classifier": "scores with the run's classifier",
            "gates": "its score is differentiable in gates, for pathwise gradients",
        },
        of_function="rss_rl.reward_models.blackbox:of_function",
    ),
    "source": _KindSpec(
        "sources",
        "rss-rl data prepare",
        {
            "generated": "generates its examples: needs no files",
            "included": "reads files shipped with it: needs none of yours",
            "rationales": "has the words that people marked",
            "pairs": "two texts per example",
            "passages": "a passage and a question per example",
        },
    ),
    "logger": _KindSpec("loggers", "loggers", {}),
}

DEFAULTS: Mapping[Kind, str] = {
    "policy": "rss",
    "encoder": "resan",
    "policy_update": "reinforce",
    "reward_model": "likelihood",
}
"""Used where a configuration names none; no other code names a component."""
_THROUGH_GATES = "pathwise"
"""The default policy update of policies that learn through their gates."""


def default_policy_update(policy: frozenset[str]) -> str:
    """Name of the default policy update for a policy with these capabilities."""
    from_rewards = "log_probs" in policy
    through_gates = "gates_first" in policy or ("gates" in policy and not from_rewards)
    return _THROUGH_GATES if through_gates else DEFAULTS["policy_update"]


class Options(BaseModel):
    """Base class of a component's options: frozen, strict, no unknown keys, no NaN.

    The string below an option, or `Field(description=...)`, describes it. An option `pretrained` is
    the folder of a model without code, which exports copy, or its name on the Hugging Face hub.
    """

    model_config = ConfigDict(
        extra="forbid",
        frozen=True,
        strict=True,
        allow_inf_nan=False,
        use_attribute_docstrings=True,
    )

    @classmethod
    def __pydantic_init_subclass__(cls, **_: Any) -> None:
        for field in cls.model_fields.values():
            field.description = field.description and " ".join(field.description.split())


class NoOptions(Options):
    """Options of a component that has none."""


@dataclass(frozen=True)
class Trust:
    """Which names of the form `package.module:OBJECT` may be imported.

    everything  all: for names from the user's command line, configuration or Python arguments
    names       these only: named again by the user for a run that was started with them
    """

    everything: bool = False
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tree: Any) -> Trust:
        """Trust in the names in a tree of plain data that the user wrote."""
        return cls(names=frozenset(_plugin_names(tree)))

    def __or__(self, other: Trust) -> Trust:
        return Trust(self.everything or other.everything, self.names | other.names)

    def admits(self, name: str) -> bool:
        """Whether the object of this name may be imported."""
        return self.everything or name in self.names


def _plugin_names(node: Any) -> Iterator[str]:
    if isinstance(node, Mapping):
        node = list(node.values())
    if isinstance(node, list | tuple):
        for value in node:
            yield from _plugin_names(value)
    elif isinstance(node, str) and ":" in node:
        yield node


EVERYTHING, NOTHING = Trust(everything=True), Trust()


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component as its own file declares it.

    kind          one of `KINDS`
    name          its name in a configuration
    help          one line
    build         called as `build(setup, options)`; for the setup see the protocol of the kind
    options       class of its options
    capabilities  keys of `KINDS[kind].capabilities`, or a function from options to such keys
    source        the paper, if there is one

    Raises:
        ConfigError: the declaration is invalid.
    """

    kind: Kind
    name: str
    help: str
    build: Callable[[Any, Any], Any]
    options: type[Options] = NoOptions
    capabilities: frozenset[str] | Callable[[Any], frozenset[str]] = frozenset()
    source: str = ""

    def __post_init__(self) -> None:
        if self.kind not in KINDS:
            raise self._wrong(f"unknown kind '{self.kind}'{nearest(self.kind, list(KINDS))}")
        texts = (self.name, self.help)
        if not all(isinstance(text, str) and text.strip() for text in texts) or ":" in self.name:
            raise self._wrong("a component has a name without colon and one line of help")
        if not (isinstance(self.options, type) and issubclass(self.options, Options)):
            raise self._wrong("options is not a class derived from rss_rl.components.Options")
        try:
            inspect.signature(self.build).bind(None, None)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"build cannot be called with setup and options: {error}") from error
        if not callable(self.capabilities):
            self._known(self.capabilities)

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(what, where=f"component {self.name!r:.80}")

    def _known(self, declared: frozenset[str]) -> frozenset[str]:
        known = list(KINDS[self.kind].capabilities)
        for capability in declared:
            if capability not in known:
                hint = nearest(capability, known)
                raise self._wrong(f"unknown capability '{capability}'{hint}")
        return frozenset(declared)

    def parse(self, options: Mapping[str, Any]) -> Any:
        """The options as an object of their class, defaults filled in.

        Raises:
            ConfigError: an unknown option (names the nearest known one), or an invalid value.
        """
        try:
            return self.options.model_validate(bounded(options))
        except ValidationError as error:
            first, key, message = first_mistake(error)
            if first["type"] == "extra_forbidden":
                known = list(self.options.model_fields)
                shown = ", ".join(known) or "none"
                raise ConfigError(
                    f"unknown option '{key:.100}'{nearest(key[:100], known)}",
                    remedy=f"Options of {self.name}: {shown}",
                ) from None
            raise ConfigError(
                f"option {key or 'values'}: {message}",
                remedy=f"`rss-rl components {KINDS[self.kind].plural} {self.name}` explains it",
            ) from None

    def can(self, capability: str, options: Any = None) -> bool:
        """Whether it declares a capability under parsed `options` (None: the defaults)."""
        return capability in self.all_capabilities(options)

    def all_capabilities(self, options: Any = None) -> frozenset[str]:
        """Its capabilities under parsed `options` (None: the defaults)."""
        if not callable(self.capabilities):
            return self.capabilities
        return self._known(self.capabilities(self.parse({}) if options is None else options))


def first_mistake(error: ValidationError) -> tuple[ErrorDetails, str, str]:
    """The first error, its dotted key and its message with the value; a misspelt key comes before
    one that is missing by it."""
    first = min(error.errors(), key=lambda mistake: mistake["type"] != "extra_forbidden")
    value, message = first["input"], first["msg"].removeprefix("Value error, ")
    shown = "" if isinstance(value, dict) else f" (got {value!r:.200})"
    return first, ".".join(str(part) for part in first["loc"]), f"{message}{shown}"


_LONGEST_LIST = 10_000


def bounded(node: Any) -> Any:
    """A tree with tuples for lists, as frozen models need.

    Raises:
        OverflowError: an integer beyond 64 bits, or a list of more values than anything takes.
    """
    if isinstance(node, Mapping | list | tuple) and len(node) > _LONGEST_LIST:
        raise OverflowError(f"a list of {len(node):,} values")
    if isinstance(node, Mapping):
        return {key: bounded(value) for key, value in node.items()}
    if isinstance(node, list | tuple):
        return tuple(bounded(value) for value in node)
    if isinstance(node, int) and abs(node) >= 2**63:
        raise OverflowError(f"a number of {node.bit_length()} bits")
    return node


# A scan opens files of every installed package, so all kinds share one.
_all_entry_points = functools.cache(entry_points)


_CLASSIFIERS = {
    "cloze": "rss_rl.models.cloze:CLOZE",
    "passage": "rss_rl.models.passage:PASSAGE",
    "sentences": "rss_rl.models.sentences:SENTENCES",
}
"""Classifiers are not plugged in: these are all."""


@functools.cache
def _installed(kind: Kind) -> Mapping[str, EntryPoint]:
    """Entry points by name; rss-rl's own take precedence over others of the same name."""
    if kind == "classifier":
        return {name: EntryPoint(name, place, "") for name, place in _CLASSIFIERS.items()}
    points = sorted(_all_entry_points().select(group=KINDS[kind].group), key=_is_built_in)
    return {point.name: point for point in points}


def is_installed(kind: Kind, name: str) -> bool:
    """Whether a component of this name is installed; it is not imported."""
    return name in _installed(kind)


def _is_built_in(point: EntryPoint) -> bool:
    return point.dist is None or point.dist.name == "rss-rl"


def component_names(kind: Kind) -> list[str]:
    """Names of the installed components of a kind, sorted."""
    return sorted(_installed(kind))


def built_in_names(kind: Kind) -> list[str]:
    """Names of the components of a kind that rss-rl itself installs, sorted."""
    return sorted(name for name, point in _installed(kind).items() if _is_built_in(point))


def find_component(kind: Kind, name: str, trust: Trust = EVERYTHING) -> Component:
    """The component called `name`: an installed one, or `package.module:OBJECT`.

    Args:
        trust: which names of the second form may be imported.

    Raises:
        ConfigError: there is no such component, it may not or cannot be imported, or it is not a
            component of this kind. Nothing of it is called before these checks.
    """
    points = _installed(kind)
    if name in points:
        return _checked(imported(points[name].value, name), kind, name)
    if ":" in name and kind != "classifier":
        if not trust.admits(name):
            raise ConfigError(
                f"'{name:.200}' is code that only this file names, and opening the file would "
                f"import that code",
                remedy="Trust the file with --trust-plugins (trust_plugins=True), name the same"
                " component on the command line, or install its package as a plug-in",
            )
        return _checked(imported(name), kind, name)
    names = component_names(kind)
    raise ConfigError(
        f"unknown {kind.replace('_', ' ')} '{name:.200}'{nearest(name[:200], names)}",
        remedy=f"Known: {', '.join(names)}"
        + ("" if kind == "classifier" else "; others as package.module:OBJECT"),
    )


def describe(component: Component, name: str = "") -> dict[str, Any]:
    """A component's declaration as plain JSON data.

    Args:
        name: under which it was found, `package.module:OBJECT` for one that is not installed.

    Returns:
        Its fields, including those of a subclass; `capabilities` under its default options, with
        their meanings; `options` with their defaults; `example`, a setting (or command) that names
        it.
    """
    spec, name, of_data = KINDS[component.kind], name or component.name, component.kind == "source"
    usual = component.options.model_construct()  # unchecked: some have no usable default
    capabilities = component.all_capabilities(usual)
    named = {f.name: getattr(component, f.name) for f in fields(component) if f.name != "build"}
    return named | {
        "name": name,
        "package": package_of(component.kind, name),
        "slot": spec.slot,
        "example": f"{spec.slot} {name} --out DIR" if of_data else f"{spec.slot}={name}",
        "capabilities": {can: spec.capabilities[can] for can in sorted(capabilities)},
        "options": usual.model_dump(mode="json", warnings=False),
    }


def kind_named(plural: str) -> Kind:
    """The kind whose entry points are in `rss_rl.<plural>`.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    known = {spec.plural: kind for kind, spec in KINDS.items()}
    if plural not in known:
        raise ConfigError(
            f"there are no components called '{plural:.100}'{nearest(plural[:100], list(known))}",
            remedy=f"Kinds: {', '.join(known)}",
        )
    return known[plural]


def package_of(kind: Kind, name: str) -> str:
    """Name and version of the package that installs a component; empty if none does."""
    point = _installed(kind).get(name)
    if point is None:
        return ""
    return f"{point.dist.name} {point.dist.version}" if point.dist else f"rss-rl {VERSION}"


def imported(value: str, name: str = "") -> Any:
    """The object at `package.module:OBJECT`, which runs the code of its module.

    Args:
        name: for messages; by default the value itself.

    Raises:
        ConfigError: there is none, or its module raises.
    """
    name = name or value
    module, _, attributes = value.partition(":")
    try:
        _see_working_directory(module.partition(".")[0])
        return functools.reduce(getattr, attributes.split("."), importlib.import_module(module))
    except Exception as error:
        raise ConfigError(
            f"'{name:.200}' cannot be imported: {error}"[:600],
            remedy="Install its package here and on every node, or correct package.module:OBJECT",
        ) from error


def _see_working_directory(package: str) -> None:
    """Make plug-ins in the working directory importable, after everything installed."""
    here = Path.cwd()
    there = (here / package).is_dir() or (here / f"{package}.py").is_file()
    if package and there and str(here) not in sys.path and "" not in sys.path:
        sys.path.append(str(here))


def _checked(thing: Any, kind: Kind, name: str) -> Component:
    if inspect.isfunction(thing) and KINDS[kind].of_function:
        component: Component = imported(KINDS[kind].of_function, name)(thing, name)
        return component
    if not isinstance(thing, Component):
        raise ConfigError(
            f"'{name:.200}' is of type {type(thing).__name__}, not a component",
            remedy="Declare one: OBJECT = rss_rl.components.Component(kind=..., name=..., ...)",
        )
    if thing.kind != kind:
        slot = KINDS[thing.kind].slot
        raise ConfigError(
            f"'{name:.200}' is a component of kind {thing.kind}, not {kind}",
            remedy=f"It belongs to {slot}",
        )
    return thing
