"""Components: what can be plugged into a run, and the one way in which all of them are found.

A policy, estimator, encoder, classifier, reward model, source or metric is one declared object:

    SPARSEMAX = Component(
        kind="policy",
        name="sparsemax",
        help="Keeps what sparsemax gives weight.",
        build=lambda setup, options: SparsemaxPolicy(setup.inputs, options.hidden),
        options=SparsemaxOptions,
        capabilities=frozenset({"gates"}),
        source="Martins and Astudillo, ICML 2016",
    )

A configuration names it by the entry point that an installed package declares in the group of its
kind (`rss_rl.policies`, ...), as those of rss-rl itself are, or as `package.module:OBJECT`. The
second imports a module that anybody may have written, so it is resolved only for names that the
user gave; in what is read from a run, an export or a storage it is refused: see `Trust`.
"""

from __future__ import annotations

import functools
import importlib
import inspect
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, fields
from importlib.metadata import EntryPoint, entry_points
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Literal, Union, get_args, get_origin

from pydantic import BaseModel, ConfigDict, ValidationError

from rss_rl.errors import ConfigError, nearest

Kind = Literal["policy", "estimator", "encoder", "classifier", "reward_model", "source", "metric"]

_TRAVELS = "a folder that an export takes along"

Folder = Annotated[str, _TRAVELS]
"""Type of an option that names a folder of files without code: an export holds a copy of it."""


@dataclass(frozen=True)
class _KindSpec:
    """What holds for all components of a kind.

    plural        names the entry-point group, `rss_rl.<plural>`, and the kind on the command line
    slot          where a configuration names one; of sources the command that does
    capabilities  what one may declare that it can, with the meaning of each
    many          the slot holds a list
    of_function   package.module:FUNCTION that makes a component of a plain function and its name
    """

    plural: str
    slot: str
    capabilities: Mapping[str, str]
    many: bool = False
    of_function: str = ""

    @property
    def group(self) -> str:
        return f"rss_rl.{self.plural}"


KINDS: Mapping[Kind, _KindSpec] = {
    "policy": _KindSpec(
        "policies",
        "policy",
        {
            "learns": "has parameters that a phase with policy: true trains",
            "log_probs": "a distribution over selections: `sample` and `evaluate`",
            "logits": "independent bits, drawn as uniform < sigmoid(logit); log_probs follow",
            "gates": "differentiable gates for pathwise gradients",
            "gates_first": "learns through its gates where no estimator is named",
            "share": "keeps what has a probability, or `steered`, over 0.5: a share steers it",
            "token_ids": "reads token ids in place of embedded tokens",
            "budget": "keeps the share that its option `share` gives",
            "random": "keeps each token with the probability that its option `probability` gives:"
            " the floor of comparisons",
        },
    ),
    "estimator": _KindSpec(
        "estimators",
        "learner.estimator",
        {
            "log_probs": "weighs log-probs by rewards; needs a policy with log_probs",
            "logits": "a gradient for each bit; needs a policy with logits",
            "gates": "through the gates, without samplers; needs policy and encoder with gates",
            "flips": "also gets the reward of each bit flipped",
            "pairs": "draws selections in pairs: sampler.selections must be even",
            "several": "compares selections of one example: sampler.selections must be 2 or more",
            "lag": "holds for selections that an older policy drew",
        },
    ),
    "encoder": _KindSpec(
        "encoders",
        "model.encoder",
        {
            "gates": "takes gates in place of a selection",
            "kept_only": "the sentence vector rests on selected tokens alone (faithful)",
            "linear_time": "time in proportion to the length of a sentence",
            "kernels": "pools or attends feature-wise, which has compiled kernels",
            "feature_attention": "attends feature-wise between tokens: slow without kernels",
            "context": "also fuses the context of a sequence of sentences, for passages",
            "onnx": "can be exported as an ONNX graph",
            "words": "reads the words of the vocabulary, not their vectors",
        },
    ),
    "classifier": _KindSpec(
        "classifiers",
        "model.classifier",
        {
            "classes": "labels that are classes",
            "score": "labels that are real numbers",
            "sentence": "labels that are a sentence of the passage",
            "candidate": "labels that are a candidate answer of the passage",
        },
    ),
    "reward_model": _KindSpec(
        "reward_models",
        "reward.model",
        {
            "classifier": "scores with the run's classifier",
            "gates": "is minus the classifier's loss, which pathwise gradients differentiate; its"
            " option `complement`, if it has one, weighs what the tokens left out still predict",
            "explains": "scores with the classifier of texts that its option `pretrained` names",
        },
        of_function="rss_rl.reward_models.blackbox:of_function",
    ),
    "source": _KindSpec(
        "sources",
        "rss-rl data prepare",
        {
            "made": "makes its examples: needs no files",
            "included": "reads files that travel with it: needs none of yours",
            "rationales": "says which words people marked",
            "pairs": "two texts an example",
            "passages": "a passage and a question an example",
        },
    ),
    "metric": _KindSpec(
        "metrics",
        "evaluation.metrics",
        {
            "classes": "labels that are classes",
            "score": "labels that are real numbers",
            "sentence": "labels that are a sentence of the passage",
            "candidate": "labels that are a candidate answer of the passage",
            "rationales": "compares with the words that people marked",
            "questions": "needs questions with rival answers",
            "predictions": "rests on what the classifier predicts",
            "standard": "is reported wherever the data fit, without being asked for",
            "main": "its first name picks the best checkpoint where best_metric is auto",
        },
        many=True,
    ),
}

DEFAULTS: Mapping[Kind, str] = {
    "policy": "rss",
    "encoder": "resan",
    "estimator": "reinforce",
    "reward_model": "likelihood",
}
"""What stands where a configuration is silent; nothing else in the program names a component."""
_THROUGH_GATES = "pathwise"
"""In place of the default estimator, for policies that learn through their gates."""


def default_estimator(policy: frozenset[str]) -> str:
    """Name of the estimator where none is named, for a policy with these capabilities."""
    from_rewards = policy & {"log_probs", "logits"}
    through_gates = "gates_first" in policy or ("gates" in policy and not from_rewards)
    return _THROUGH_GATES if through_gates else DEFAULTS["estimator"]


class Options(BaseModel):
    """Options of a component: frozen, strict, no unknown keys, no NaN; derive from it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, allow_inf_nan=False)


class NoOptions(Options):
    """Of components that have none."""


@dataclass(frozen=True)
class Trust:
    """Which names of the form `package.module:OBJECT` may be imported.

    everything  all: a command line, a configuration or a Python argument is the user's own word
    names       these alone: what the user named again for a run that was begun with them
    """

    everything: bool = False
    names: frozenset[str] = frozenset()

    @classmethod
    def of(cls, tree: Any) -> Trust:
        """In the names that stand in a tree of plain data, which the user wrote."""
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


@dataclass(frozen=True)
class Measure:
    """A number that a metric reports, and how reports show it.

    name             in reports, configurations and, behind `dev/<selection>/`, in TensorBoard
    label            heading of its column
    meaning, unit    for the table of all that a run logs
    percent          a share, shown in percent
    places           that are shown of other numbers
    largest          that it can be, math.inf where nothing bounds it
    lower_is_better  the least is the best
    brief            also shown where there is room for a few numbers only
    """

    name: str
    label: str
    meaning: str
    unit: str = "-"
    percent: bool = False
    places: int = 4
    largest: float = 1.0
    lower_is_better: bool = False
    brief: bool = False


@dataclass(frozen=True, kw_only=True)
class Component:
    """A component as its own file declares it.

    kind          of what it is
    name          by which a configuration names it
    help          one line
    build         called `build(setup, options)`; the setup of each kind: see its protocol
    options       its options, a class of pydantic fields
    capabilities  identifiers of `KINDS[kind].capabilities`, or a function of the options to these
    source        the paper, where there is one
    measures      of a metric: what it may report, the leading one first; what none describes is
                  shown by its name, and more of it is better
    was           where an option stood in a configuration of an earlier version, by its name here,
                  such as {"windows": "model.cnn_windows"}; by default the key of its own name in
                  the section that holds the slot

    Raises:
        ConfigError: at once, where the declaration is not one.
    """

    kind: Kind
    name: str
    help: str
    build: Callable[[Any, Any], Any]
    options: type[Options] = NoOptions
    capabilities: frozenset[str] | Callable[[Any], frozenset[str]] = frozenset()
    source: str = ""
    measures: tuple[Measure, ...] = ()
    was: Mapping[str, str] | None = None

    def __post_init__(self) -> None:
        if self.kind not in get_args(Kind):
            raise self._wrong(
                f"unknown kind '{self.kind}'{nearest(self.kind, list(get_args(Kind)))}"
            )
        texts = (self.name, self.help)
        if not all(isinstance(text, str) and text.strip() for text in texts) or ":" in self.name:
            raise self._wrong("a component has a name without colon and one line of help")
        if not (isinstance(self.options, type) and issubclass(self.options, Options)):
            raise self._wrong("options is no class derived from rss_rl.components.Options")
        if not callable(self.build):
            raise self._wrong("build is not callable")
        try:
            inspect.signature(self.build).bind(None, None)
        except (TypeError, ValueError) as error:
            raise self._wrong(f"build cannot be called with setup and options: {error}") from error
        if not callable(self.capabilities):
            self._known(self.capabilities)
        if self.measures and self.kind != "metric":
            raise self._wrong("only a metric has measures")

    def _wrong(self, what: str) -> ConfigError:
        return ConfigError(what, where=f"component {self.name!r:.80}")

    def _known(self, found: frozenset[str]) -> frozenset[str]:
        known = list(KINDS[self.kind].capabilities)
        for capability in found:
            if capability not in known:
                hint = nearest(capability, known)
                raise self._wrong(f"unknown capability '{capability}'{hint}")
        return frozenset(found)

    def parse(self, options: Mapping[str, Any]) -> Any:
        """The options as an object of their class, defaults filled in.

        Raises:
            ConfigError: an unknown option, with the nearest right one, or a value that does not do.
        """
        try:
            return self.options.model_validate(_tuples(options))
        except ValidationError as error:
            # A misspelt key is its own cause: it is said before the key that is missing for it.
            first = min(error.errors(), key=lambda found: found["type"] != "extra_forbidden")
            key = ".".join(str(part) for part in first["loc"])
            if first["type"] == "extra_forbidden":
                known = list(self.options.model_fields)
                shown = ", ".join(known) or "none"
                raise ConfigError(
                    f"unknown option '{key:.100}'{nearest(key[:100], known)}",
                    remedy=f"Options of {self.name}: {shown}",
                ) from None
            message = first["msg"].removeprefix("Value error, ")
            given = "" if isinstance(first["input"], dict) else f" (got {first['input']!r:.100})"
            raise ConfigError(
                f"option {key or 'values'}: {message}{given}",
                remedy=f"`rss-rl components {KINDS[self.kind].plural} {self.name}` explains it",
            ) from None

    def can(self, capability: str, options: Any = None) -> bool:
        """Whether it declares a capability, under options as `parse` returns them (default: none
        given)."""
        return capability in self.all_capabilities(options)

    def all_capabilities(self, options: Any = None) -> frozenset[str]:
        """What it can under these options."""
        if not callable(self.capabilities):
            return self.capabilities
        return self._known(self.capabilities(self.parse({}) if options is None else options))


def _tuples(node: Any) -> Any:
    """Lists as tuples, which frozen models hold."""
    if isinstance(node, Mapping):
        return {key: _tuples(value) for key, value in node.items()}
    return tuple(_tuples(value) for value in node) if isinstance(node, list | tuple) else node


@functools.cache
def _installed(kind: Kind) -> Mapping[str, EntryPoint]:
    """Entry points by name; those of rss-rl itself come before others of the same name."""
    points = sorted(entry_points(group=KINDS[kind].group), key=_is_built_in)
    return {point.name: point for point in points}


def _is_built_in(point: EntryPoint) -> bool:
    return point.dist is not None and point.dist.name == "rss-rl"


def component_names(kind: Kind) -> list[str]:
    """Names of the installed components of a kind, sorted."""
    return sorted(_installed(kind))


def built_in_names(kind: Kind) -> list[str]:
    """Names of the components of a kind that rss-rl itself installs, sorted."""
    return sorted(name for name, point in _installed(kind).items() if _is_built_in(point))


def folder_options(options: type[Options]) -> list[str]:
    """Names of the options that are of type `Folder`."""
    fields = options.model_fields.items()
    return [name for name, f in fields if _TRAVELS in f.metadata or f.annotation == Folder | None]


def find_component(kind: Kind, name: str, trust: Trust = EVERYTHING) -> Component:
    """The component called `name`: an installed one, or `package.module:OBJECT`.

    Args:
        trust: which names of the second form may be imported.

    Raises:
        ConfigError: no such component, it may not or cannot be imported, or what the name stands
            for is no component of this kind. Nothing of it is called before that is known.
    """
    points = _installed(kind)
    if name in points:
        return _checked(imported(points[name].value, name), kind, name)
    if ":" in name:
        if not trust.admits(name):
            raise ConfigError(
                f"'{name:.200}' is code that only this file asks for, and opening it would "
                f"import that code",
                remedy="Trust the file with --trust-plugins (trust_plugins=True), name the same"
                " component on the command line, or install its package as a plug-in",
            )
        return _checked(imported(name), kind, name)
    names = component_names(kind)
    raise ConfigError(
        f"unknown {kind.replace('_', ' ')} '{name:.200}'{nearest(name[:200], names)}",
        remedy=f"Known: {', '.join(names)}; others as package.module:OBJECT",
    )


def describe(component: Component, name: str = "") -> dict[str, Any]:
    """All that a component says of itself, as plain JSON data.

    Args:
        name: by which it was found, `package.module:OBJECT` for one that is not installed.

    Returns:
        Its fields, those of a subclass too; `capabilities` at its default options, with what each
        means, and `by_options` where others change them; of each option name, type, default, bounds
        and description; `short` and `example`, how a configuration (or command) names it;
        of a metric its `measures`, with what each means.
    """
    spec, name = KINDS[component.kind], name or component.name
    usual = component.options.model_construct()  # unchecked: some have no usable default
    defaults = usual.model_dump(mode="json", warnings=False)
    own = {field.name for field in fields(component)} - {field.name for field in fields(Component)}
    return {
        "kind": component.kind,
        "name": name,
        "help": component.help,
        "source": component.source,
        "measures": {measure.name: measure.meaning for measure in component.measures},
        "package": package_of(component.kind, name),
        **{field: getattr(component, field) for field in sorted(own)},
        "slot": spec.slot,
        "short": _example(component, name, {}),
        "example": _example(component, name, defaults),
        "capabilities": {
            can: spec.capabilities[can] for can in sorted(component.all_capabilities(usual))
        },
        "by_options": callable(component.capabilities),
        "options": [
            {
                "name": option,
                "type": _shown_type(field.annotation),
                "default": defaults.get(option),
                "required": field.is_required(),
                "bounds": ", ".join(filter(None, map(_shown_bound, field.metadata))),
                "description": field.description or "",
            }
            for option, field in component.options.model_fields.items()
        ],
    }


def _example(component: Component, name: str, options: Mapping[str, Any]) -> Any:
    """A configuration, or for a source a command, that names it with these options."""
    spec = KINDS[component.kind]
    if component.kind == "source":
        usual = component.options.model_construct()
        own = component.can("made", usual) or component.can("included", usual)
        given = "".join(f" --option {key}={json.dumps(value)}" for key, value in options.items())
        return f"{spec.slot} {name}{'' if own else ' --from FOLDER'}{given} --out DIR"
    tree: Any = {"name": name, "options": options} if options else name
    tree = [tree] if spec.many else tree
    for key in reversed(spec.slot.split(".")):
        tree = {key: tree}
    return tree


def _shown_type(annotation: Any) -> str:
    """A type as a user writes its values: `int | null`, `relu | elu`, `list of int`."""
    origin, parts = get_origin(annotation), get_args(annotation)
    if annotation is type(None):
        return "null"
    if origin is Literal:
        return " | ".join(str(part) for part in parts)
    if origin is Annotated:
        return _shown_type(parts[0])
    if origin in (Union, UnionType):
        return " | ".join(_shown_type(part) for part in parts)
    if origin in (tuple, list):
        return f"list of {' and '.join(_shown_type(part) for part in parts if part is not ...)}"
    return annotation.__name__ if isinstance(annotation, type) else str(annotation)


def _shown_bound(bound: Any) -> str:
    """One of pydantic's conditions; empty for what bounds no value."""
    signs = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<", "multiple_of": "a multiple of"}
    signs |= {"min_length": "length >=", "max_length": "length <=", "pattern": "like"}
    found = ((sign, getattr(bound, key, None)) for key, sign in signs.items())
    return ", ".join(f"{sign} {value}" for sign, value in found if value is not None)


def installed_components(kind: Kind) -> dict[str, Component | ConfigError]:
    """All installed components of a kind by name; in place of one that is broken its error."""
    found: dict[str, Component | ConfigError] = {}
    for name in component_names(kind):
        try:
            found[name] = find_component(kind, name)
        except ConfigError as error:
            found[name] = error
    return found


def kind_named(plural: str) -> Kind:
    """The kind whose entry points are in `rss_rl.<plural>`.

    Raises:
        ConfigError: none is, with the nearest.
    """
    known = {spec.plural: kind for kind, spec in KINDS.items()}
    if plural not in known:
        raise ConfigError(
            f"there are no components called '{plural:.100}'{nearest(plural[:100], list(known))}",
            remedy=f"Kinds: {', '.join(known)}",
        )
    return known[plural]


def package_of(kind: Kind, name: str) -> str:
    """Which installed package offers a component; empty for one that is not installed."""
    point = _installed(kind).get(name)
    distribution = point.dist if point else None
    return "" if distribution is None else f"{distribution.name} {distribution.version}"


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
    """Let a plug-in in the working directory be found, behind everything that is installed."""
    here = Path.cwd()
    there = (here / package).is_dir() or (here / f"{package}.py").is_file()
    if package and there and str(here) not in sys.path and "" not in sys.path:
        sys.path.append(str(here))


def _checked(found: Any, kind: Kind, name: str) -> Component:
    if inspect.isfunction(found) and KINDS[kind].of_function:
        made: Component = imported(KINDS[kind].of_function, name)(found, name)
        return made
    if not isinstance(found, Component):
        raise ConfigError(
            f"'{name:.200}' is {_article(type(found).__name__)}, not a component",
            remedy="Declare one: OBJECT = rss_rl.components.Component(kind=..., name=..., ...)",
        )
    if found.kind != kind:
        slot = KINDS[found.kind].slot
        raise ConfigError(
            f"'{name:.200}' is a component of kind {found.kind}, not {kind}",
            remedy=f"It belongs to {slot}",
        )
    return found


def _article(noun: str) -> str:
    return f"an {noun}" if noun[:1].lower() in "aeiou" else f"a {noun}"
