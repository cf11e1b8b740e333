"""Commands that README, docs and the command line's own help show exist as they are shown."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import Path

from cyclopts import App, CycloptsError
from fences import fences, inline, pages, typed

from rss_rl.cli.main import COMMANDS
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
    command, rest = COMMANDS, list(words[1:])
    while rest and rest[0] in command:
        command = command[rest.pop(0)]
    if command.default_command is None:
        return f"there is no command {rest[0]!r}" if rest and not rest[0].isupper() else None
    if {"-h", "--help"} & set(rest):
        return None
    known = {name for option in command.assemble_argument_collection() for name in option.names}
    dashed = (word.partition("=")[0] for word in rest if word.startswith("--") and word != "--")
    if unknown := [option for option in dashed if option not in known]:
        return f"there is no option {unknown[0]}"
    try:
        given = COMMANDS.parse_args(list(words[1:]))[1].arguments
    except CycloptsError as error:
        return str(error) if whole else None
    if not keys:
        return None
    name = command.name[0]
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


def commands(group: App, path: str = "rss-rl") -> Iterator[tuple[str, str]]:
    """Every command's path, and all that its help says."""
    for name in group:
        if name.startswith("-"):
            continue
        command = group[name]
        if command.default_command is None:
            yield from commands(command, f"{path} {name}")
        else:
            yield f"{path} {name}", f"{command.help}\n\n{command.help_epilogue}"


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
    texts += commands(COMMANDS)
    typed_inline = [(place, words) for place, text in texts for words in inline(text)]
    assert len(typed_inline) > 60
    found = [(place, words, complaint(words, whole=False)) for place, words in typed_inline]
    assert not [entry for entry in found if entry[2]]


def test_the_help_of_every_command_ends_with_an_example_of_it() -> None:
    found = list(commands(COMMANDS))
    assert len(found) > 15
    assert not [path for path, text in found if f"Examples:\n\n`{path}" not in text]
