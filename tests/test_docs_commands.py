"""Commands that README, docs and the command line's own help show exist as they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest
import typer
import typer.main
from fences import fences, inline, pages, typed
from typer.core import TyperGroup

from rss_rl.cli.main import app
from rss_rl.config import load_config
from rss_rl.errors import RssError
from rss_rl.packaged import find_config, packaged_configs

CONFIGURED = {"demo": "demo", "fit": "own"}
"""Commands whose overrides are of one configuration; others name theirs."""
PLACEHOLDERS = {"$seed", "SEED"}


def complaint(words: Sequence[str], *, whole: bool, keys: bool = True) -> str | None:
    """What is wrong with a command of rss-rl.

    Args:
        words: of the command, from `rss-rl` on.
        whole: it could be typed as it stands, so what is required must be there.
        keys: KEY=VALUE settings are looked at, too, where the configuration is a shipped one.
    """
    command: Any = typer.main.get_command(app)
    context = typer.Context(command, info_name="rss-rl")
    rest = list(words[1:])
    name = "rss-rl"
    while isinstance(command, TyperGroup) and rest and not rest[0].startswith("-"):
        name, group = rest.pop(0), command
        command = group.get_command(context, name)
        if command is None:
            return None if name.isupper() else f"there is no command {name!r}"
        context = typer.Context(command, info_name=name, parent=context)
    if {"-h", "--help"} & set(rest):
        return None
    try:
        if whole:
            given = command.make_context(name, rest).params
        else:
            given, _, _ = command.make_parser(context).parse_args(args=rest)
    except Exception as error:  # typer does not export the class of all that its parser raises
        return str(error.format_message()) if hasattr(error, "format_message") else repr(error)
    if not keys:
        return None
    return _wrong_key(CONFIGURED.get(name, given.get("config")), given.get("overrides") or ())


def _wrong_key(config: str | None, overrides: Sequence[str]) -> str | None:
    if config not in packaged_configs():
        return None
    pairs = [override.partition("=") for override in overrides]
    filled = [f"{key}={0 if value in PLACEHOLDERS else value}" for key, _, value in pairs]
    try:
        load_config(find_config(config), filled)
    except RssError as error:
        return str(error)
    return None


def helped(group: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Every command's name, and all that its help says."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        yield name, "\n".join(filter(None, [command.help, command.epilog]))
        if isinstance(command, TyperGroup):
            yield from helped(command, inner)


@pytest.mark.parametrize(
    ("command", "why"),
    [
        ("rss-rl trian demo", "no command 'trian'"),
        ("rss-rl train demo --run-dri x", "--run-dri"),
        ("rss-rl fit reviews.csv --text review", "label"),
        ("rss-rl train demo model.hiden=8", "model.hiden"),
        ("rss-rl config show demo phases.0.step=3", "phases.0.step"),
        ("rss-rl data prepear x", "no command 'prepear'"),
    ],
)
def test_a_wrong_command_is_found(command: str, why: str) -> None:
    found = complaint(command.split(), whole=True)
    assert found is not None
    assert why in found


def test_commands_are_taken_apart() -> None:
    text = (
        "$ A=1 rss-rl demo \\\n   --seed 1  # twice\nout\n$ for s in 0 1; do rss-rl x; done | cat\n"
    )
    assert [words for words in typed(text) if words[0] == "rss-rl"] == [
        ["rss-rl", "demo", "--seed", "1"],
        ["rss-rl", "x"],
    ]
    assert list(inline("says `rss-rl\nfit x` and `rss-rl`")) == [["rss-rl", "fit", "x"]]


def test_commands_in_console_blocks_exist(repository: Path) -> None:
    blocks = [f for page in pages(repository) for f in fences(page) if f.language == "console"]
    commands = [(fence, words) for fence in blocks for words in typed(fence.text)]
    ours = [(fence, words) for fence, words in commands if words[0] == "rss-rl"]
    assert len(ours) > 30
    found = [(f.place, w, complaint(w, whole=True, keys=f.excuse is None)) for f, w in ours]
    assert not [entry for entry in found if entry[2]]
    targets = set(re.findall(r"^([a-z-]+):", (repository / "Makefile").read_text(), re.MULTILINE))
    made = [(fence.place, words[1]) for fence, words in commands if words[0] == "make"]
    assert not [entry for entry in made if entry[1] not in targets]


def test_commands_between_backticks_exist(repository: Path) -> None:
    texts = [(page.name, page.read_text(encoding="utf-8")) for page in pages(repository)]
    group: Any = typer.main.get_command(app)
    texts += helped(group, typer.Context(group, info_name="rss-rl"))
    commands = [(place, words) for place, text in texts for words in inline(text)]
    assert len(commands) > 60
    found = [(place, words, complaint(words, whole=False)) for place, words in commands]
    assert not [entry for entry in found if entry[2]]


def epilogs(group: Any, context: Any) -> Iterator[tuple[str, str]]:
    """Every command's path, and what its help ends with."""
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        inner = typer.Context(command, info_name=name, parent=context)
        yield inner.command_path, command.epilog or ""
        if isinstance(command, TyperGroup):
            yield from epilogs(command, inner)


def test_the_help_of_every_command_ends_with_an_example_of_it() -> None:
    group: Any = typer.main.get_command(app)
    found = list(epilogs(group, typer.Context(group, info_name="rss-rl")))
    assert len(found) > 15
    assert not [path for path, epilog in found if f"`{path}" not in epilog]
