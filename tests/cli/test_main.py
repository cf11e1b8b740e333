"""What every command shares: help that teaches, a fast start, and one message for an error."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest
from invoking import invoke

import rss_rl

COMMANDS = [
    "demo",
    "train",
    "evaluate",
    "select",
    "explain",
    "serve",
    "predict",
    "export",
    "report",
    "status",
    "config show",
    "data prepare",
    "data list",
    "data fetch",
    "submit",
    "doctor",
]


@pytest.mark.parametrize("command", COMMANDS)
def test_help_has_examples(command: str) -> None:
    result = invoke([*command.split(), "--help"])
    assert result.exit_code == 0
    assert f"rss-rl {command}" in result.output
    assert "Example" in result.output


def test_the_version_is_printed() -> None:
    result = invoke(["--version"])
    assert result.output == f"rss-rl {rss_rl.__version__}\n"


@pytest.mark.parametrize(
    "arguments", [["--help"], ["train", "--help"], ["serve", "--help"], ["config", "list"]]
)
def test_light_commands_import_neither_torch_nor_ray(arguments: list[str]) -> None:
    code = (
        "import sys\nfrom rss_rl.cli.main import app\n"
        "try: app(sys.argv[1:])\nexcept SystemExit as end: assert not end.code\n"
        "heavy = {'torch', 'ray', 'tensorboard', 'nltk', 'starlette', 'uvicorn'}\n"
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

    @pytest.mark.parametrize(("value", "shown"), [("1", True), ("0", False), ("", False)])
    def test_the_traceback_with_the_variable(
        self, value: str, shown: bool, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("RSS_RL_DEBUG", value)
        result = invoke(self.ARGUMENTS)
        assert ("Traceback" in result.stderr) == shown


def test_a_job_does_not_train_into_a_directory_that_vanishes(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", "{}")
    ended = invoke(["train", "demo", f"data={tmp_path}", "--run-dir", "runs/x"])
    assert ended.exit_code != 0
    assert "deleted when the job ends" in str(ended.exception) + ended.output


def test_a_name_that_no_file_can_have_is_one_line() -> None:
    result = invoke(["demo", "--run-dir", "n" * 300])
    assert result.exit_code == 2
    assert result.stderr == f"error: {'n' * 300}/config.json: File name too long\n"
