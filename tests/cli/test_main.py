"""What every command shares: help that teaches, a fast start, and one message for an error."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from cyclopts import App
from invoking import invoke

import rss_rl
from rss_rl.cli.main import COMMANDS


def commands(group: App, path: str = "") -> Iterator[str]:
    for name in group:
        if name.startswith("-"):
            continue
        if group[name].default_command is None:
            yield from commands(group[name], f"{path}{name} ")
        else:
            yield f"{path}{name}"


@pytest.mark.parametrize("path", list(commands(COMMANDS)))
def test_help_has_examples_and_whole_names(path: str) -> None:
    result = invoke([*path.split(), "--help"], {"COLUMNS": "80"})
    assert result.exit_code == 0
    assert f"rss-rl {path}" in result.stdout.partition("Examples:")[2]
    command = COMMANDS
    for name in path.split():
        command = command[name]
    for option in command.assemble_argument_collection():
        assert any(f"{name}{end}" in result.stdout for name in option.names for end in (" ", "\n"))
    assert max(map(len, result.stdout.splitlines())) <= 80


def test_every_parameter_says_what_it_means() -> None:
    listed = re.findall(r"^\* `.*$", COMMANDS.generate_docs(), re.MULTILINE)
    assert len(listed) > 150
    assert not [line for line in listed if not re.match(r"\* `[^`]+`: \w", line)]


def test_a_command_is_the_function_of_its_name() -> None:
    named = {path.split()[0] for path in commands(COMMANDS)}
    assert named - {*rss_rl.__all__} == {"data", "config", "components", "doctor"}


def test_the_version_is_printed() -> None:
    result = invoke(["--version"])
    assert result.output == f"rss-rl {rss_rl.__version__}\n"


@pytest.mark.parametrize("arguments", [["--help"], ["serve", "--help"], ["config", "list"]])
def test_light_commands_import_neither_torch_nor_ray(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom rss_rl.cli.main import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'ray', 'tensorboard', 'starlette', 'uvicorn'}\n"
        "if '--help' in sys.argv: heavy |= {'numpy', 'pyarrow'}\n"
        "heavy &= set(sys.modules)\n"
        "assert not heavy, heavy"
    )
    ended = subprocess.run(
        [sys.executable, "-c", code, *arguments], capture_output=True, text=True, timeout=60
    )
    assert ended.returncode == 0, ended.stderr


class TestErrors:
    ARGUMENTS = ("report", "nowhere")

    def test_one_message_and_exit_code_2(self) -> None:
        result = invoke(self.ARGUMENTS)
        assert result.exit_code == 2
        assert result.stdout == ""
        assert result.stderr.startswith("error: ")
        assert result.stderr.count("\n") == 1

    def test_the_traceback_with_debug(self) -> None:
        result = invoke(["--debug", *self.ARGUMENTS])
        assert result.exit_code == 2
        assert "Traceback" in result.stderr
        assert "\nerror: " in result.stderr


def test_a_job_does_not_train_into_a_directory_that_vanishes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    ended = invoke(["train", "demo", f"data={tmp_path}", "--out", "runs/x"])
    assert ended.exit_code != 0
    assert "deleted when the job ends" in str(ended.exception) + ended.output


def test_the_demo_alone_prepares_its_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    result = invoke(["train", "demo_real"])
    assert result.exit_code == 2
    assert "Run `rss-rl demo --real` first, and give data=runs/demo-real-data" in result.stderr


def test_a_table_is_a_file_and_no_address() -> None:
    for command in (["fit"], ["data", "prepare", "--out", "none"]):
        result = invoke([*command, "https://a.org/b.csv", "--text", "a", "--label", "b"])
        assert result.exit_code == 2
        assert "https://a.org/b.csv: is an address, not a file. Download it" in result.stderr


def test_mistakes_in_a_command_are_one_line_with_where_to_look() -> None:
    for words, why in (
        (["fit", "a.csv", "--lable", "b"], "Unknown option: --lable. Did you mean --label?"),
        (["fit", "a.csv"], "--text is missing"),
        (["data", "prepare", "x", "--out", "y", "--task", "z"], 'Invalid value "z" for --task'),
        (["fot"], "unknown command 'fot'; did you mean 'fit'?"),
    ):
        result = invoke(words)
        assert result.exit_code == 2
        assert why in result.stderr
        assert result.stderr.count("\n") == 1
        assert "--help" in result.stderr
