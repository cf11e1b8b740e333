from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Annotated, Any, Literal

import plugged
import pytest
from pydantic import Field

import rss_rl.components
from rss_rl.components import (
    EVERYTHING,
    KINDS,
    NOTHING,
    Component,
    NoOptions,
    Options,
    Trust,
    component_names,
    describe,
    find_component,
)
from rss_rl.errors import ConfigError

OTHER_MEANINGS = {
    "attention", "cnn", "mean", "passage", "planted", "sentences", "tensorboard",
}  # fmt: skip
"""Names of components that are also tensors, commands, ..."""
SIDE_EFFECT = """
from pathlib import Path
Path(__file__).with_suffix(".imported").touch()
"""


def test_no_module_of_the_core_names_a_component_but_the_one_that_declares_it() -> None:
    root = Path(rss_rl.components.__file__).parents[1]
    names = {name for kind in KINDS for name in component_names(kind)} - OTHER_MEANINGS
    quoted = re.compile("[\"'](" + "|".join(map(re.escape, names)) + ")[\"']")
    for path in (p for room in ("rss_rl", "envs", "learners") for p in (root / room).rglob("*.py")):
        text = re.sub(r"__all__ = \[.*?\]", "", path.read_text(), flags=re.DOTALL)
        found = set(quoted.findall(text)) - set(re.findall(r'name="([a-z0-9-]+)"', text))
        if path.name == "agreement.py":
            found.discard("top-k")  # a way to choose words by their scores, whatever the policy
        # Defaults; what the demos train on.
        allowed = path.name in ("components.py", "demo.py")
        assert allowed or not found, (path, found)


def declared(**changed: Any) -> Component:
    given = {"kind": "encoder", "name": "one", "help": "One.", "build": lambda s, o: None}
    return Component(**{**given, **changed})


def test_found_by_module_and_object() -> None:
    assert find_component("encoder", "plugged:GREETING") is plugged.GREETING


@pytest.mark.parametrize("name", ["os:system", "plugged:function", "plugged:calls"])
def test_what_is_no_component_is_refused_and_never_called(name: str) -> None:
    with pytest.raises(ConfigError, match="not a component"):
        find_component("encoder", name)
    assert plugged.calls == []


def test_another_kind_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"kind encoder, not policy.*model\.encoder"):
        find_component("policy", "plugged:GREETING")


def test_classifiers_are_not_plugged_in() -> None:
    with pytest.raises(ConfigError, match="unknown classifier") as caught:
        find_component("classifier", "plugged:GREETING")
    assert caught.value.remedy == "Known: cloze, passage, sentences"


def test_untrusted_names_are_not_imported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "strange_module.py").write_text(SIDE_EFFECT)
    monkeypatch.syspath_prepend(tmp_path)
    for trust in (NOTHING, Trust(names=frozenset({"strange_module:OTHER"}))):
        with pytest.raises(ConfigError, match="--trust-plugins"):
            find_component("encoder", "strange_module:THING", trust)
    assert not (tmp_path / "strange_module.imported").exists()
    for trust in (EVERYTHING, Trust(names=frozenset({"strange_module:THING"}))):
        with pytest.raises(ConfigError, match="has no attribute 'THING'"):
            find_component("encoder", "strange_module:THING", trust)
    assert (tmp_path / "strange_module.imported").exists()


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"kind": "polcy"}, "unknown kind 'polcy'.*policy"),
        ({"name": "a:b"}, "name without colon"),
        ({"help": " "}, "one line of help"),
        ({"options": dict}, "derived from"),
        ({"build": lambda setup: None}, "setup and options"),
        ({"build": None}, "build cannot be called with setup and options"),
        ({"capabilities": frozenset({"gatess"})}, "unknown capability 'gatess'.*gates"),
    ],
)
def test_a_wrong_declaration_is_an_error_at_once(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        declared(**changed)


def test_options_are_completed_and_checked() -> None:
    component = plugged.GREETING
    assert component.parse({}).times == 1
    assert component.build(None, component.parse({"times": 2})) == "hello hello "
    with pytest.raises(ConfigError, match=r"unknown option 'tims'.*times"):
        component.parse({"tims": 2})
    with pytest.raises(ConfigError, match=r"option times: .*greater than or equal to 1.*got 0"):
        component.parse({"times": 0})
    with pytest.raises(ConfigError, match=r"option times: .*integer.*got '2'"):
        component.parse({"times": "2"})


def test_capabilities_may_follow_from_options() -> None:
    component = plugged.GREETING
    assert component.can("kept_only")
    assert not component.can("gates")
    assert component.can("gates", component.parse({"loud": True}))
    wrong = declared(capabilities=lambda options: frozenset({"gatess"}))
    with pytest.raises(ConfigError, match="unknown capability"):
        wrong.can("gates")


def test_a_component_without_options_takes_none() -> None:
    assert isinstance(declared().parse({}), NoOptions)
    with pytest.raises(ConfigError, match="Options of one: none"):
        declared().parse({"times": 1})


class ManyOptions(Options):
    """Of every form that a field has."""

    name: str = Field(pattern="^a", description="What.")
    share: float | None = Field(default=None, gt=0, lt=1)
    mode: Literal["one", "two"] = "two"
    sizes: tuple[Annotated[int, Field(ge=1)], ...] = Field(default=(1, 2), min_length=1)
    even: int = Field(default=2, multiple_of=2, le=10)


def test_a_component_is_described() -> None:
    shown = describe(declared(options=ManyOptions))
    assert shown["options"] == {"share": None, "mode": "two", "sizes": [1, 2], "even": 2}
    assert json.loads(json.dumps(shown)) == shown
    assert shown["package"] == ""
