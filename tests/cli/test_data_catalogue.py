"""`rss-rl data list` and `rss-rl data fetch` as typed, killed and stopped for real."""

from __future__ import annotations

import io
import json
import os
import random
import shlex
import signal
import subprocess
import sys
import time
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, Served, file_server
from rich.console import Console
from typer.testing import CliRunner, Result

from rss_rl.cli.data_catalogue import _BARS, progress_lines
from rss_rl.cli.main import app
from rss_rl.data.fetching.catalogue import CATALOGUE
from rss_rl.data.sources import known_sources

BODY = random.Random(0).randbytes(400_000)
NOISE = "checksum not known: the size and the archive's own integrity are checked"


def run(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["data", *(str(argument) for argument in arguments)])


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[FileServer]:
    monkeypatch.setenv("no_proxy", "*")
    with file_server() as made:
        yield made


class TestList:
    def test_all_are_listed_within_80_columns(self) -> None:
        lines = run("list").output.splitlines()
        for name in (*known_sources(), *CATALOGUE):
            assert sum(line.split(" ")[0] == name for line in lines) == 1
        assert max(map(len, lines)) <= 80
        text = "\n".join(lines)
        for word in ("549,367", "CC BY-SA 4.0", "94.6", "by hand", "made", "answer-sentence"):
            assert word in text
        assert "…" not in text

    def test_one_is_shown_whole(self) -> None:
        text = run("list", "snli").output
        for file in CATALOGUE["snli"].files:
            assert file.url in text
            assert file.sha256 in text
        for words in ("train 549,367", "94,550,081 bytes", "rss-rl data fetch snli", "by hand"):
            assert words in text
        assert "nothing: it is made" in run("list", "planted").output
        included = run("list", "product-reviews").output
        assert "nothing: it is included" in included
        assert "--from" not in included
        unknown = run("list", "cr").output
        assert "size not known" in unknown
        assert "checksum not known" in unknown

    def test_unknown_names_are_explained(self) -> None:
        result = run("list", "snil")
        assert result.exit_code == 2
        assert "did you mean 'snli'" in result.stderr

    def test_json_has_the_same(self) -> None:
        known = {item["name"]: item for item in json.loads(run("list", "--json").output)}
        assert set(known) == {*known_sources(), *CATALOGUE}
        assert known["snli"]["files"][0]["size"] == 94_550_081
        assert (known["snli"]["folder"], known["snli"]["megabytes"]) == ("snli", 94.6)
        assert known["snli"]["get"] == "fetch"
        assert known["who-did-what"]["get"] == "by hand"
        assert known["planted"]["get"] == "made"
        assert known["product-reviews"]["get"] == "included"
        assert json.loads(run("list", "trec", "--json").output) == known["trec"]


def sick_zips(server: FileServer) -> None:
    """The three archives of SICK as the catalogue knows them, with sentences of our own."""
    header = "pair_ID\tsentence_A\tsentence_B\trelatedness_score\tentailment_judgment\n"
    rows = "".join(f"{i}\tA dog runs\tA cat sleeps\t{1 + i % 5}\tNEUTRAL\n" for i in range(9))
    for file in CATALOGUE["sick-entailment"].files:
        made = io.BytesIO()
        assert file.unpack is not None
        with zipfile.ZipFile(made, "w") as package:
            package.writestr(file.unpack.members[0], header + rows)
            package.writestr("readme.txt", "about")
        server.files[file.name] = Served(made.getvalue())


class TestFetch:
    def test_help_teaches(self) -> None:
        text = " ".join(run("fetch", "--help").output.split())
        for word in ("--mirror", "--to", "--force", "HTTPS_PROXY", "fetched.json", "Examples"):
            assert word in text

    def test_what_it_leaves_is_what_the_last_line_prepares(
        self, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        sick_zips(server)
        result = run("fetch", "sick-relatedness", "--mirror", server.url)
        assert result.exit_code == 0, result.output
        *lines, command = result.stdout.splitlines()
        assert NOISE in "\n".join(lines)
        assert "CC BY-NC-SA 3.0" in lines[-2]
        program, *arguments = shlex.split(command)
        assert program == "rss-rl"
        prepared = CliRunner().invoke(app, [*arguments, "--json"])
        assert prepared.exit_code == 0, prepared.output
        assert json.loads(prepared.stdout)["splits"]["train"]["rows"] == 9
        again = json.loads(run("fetch", "sick-relatedness", "--json").stdout)
        assert all(file["before"] for file in again["files"])
        assert again["next"] == command

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("snil", "did you mean 'snli'"),
            ("planted", "rss-rl data prepare planted"),
            ("who-did-what", "LDC2011T07"),
            ("googlenews", "put GoogleNews-vectors-negative300.bin.gz into"),
        ],
    )
    def test_what_cannot_be_fetched_is_explained(
        self, name: str, message: str, tmp_path: Path
    ) -> None:
        result = run("fetch", name, "--to", tmp_path)
        assert result.exit_code == 2
        assert message in result.stderr

    def test_no_internet_is_said_at_once(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:1")
        begun = time.monotonic()
        result = run("fetch", "trec", "--to", tmp_path)
        assert time.monotonic() - begun < 5
        assert result.exit_code == 2
        url, home = CATALOGUE["trec"].files[0].url, CATALOGUE["trec"].home
        for words in (f"{url}: cannot be reached", f"By hand ({home})", "--mirror", "HTTPS_PROXY"):
            assert words in result.stderr

    def test_progress_tells_speed_and_time_left(self) -> None:
        screen = io.StringIO()
        console = Console(file=screen, force_terminal=True, width=100)
        with progress_lines(_BARS, quiet=False, console=console) as report:
            for done in range(0, 50_000_001, 10_000_000):
                report("file.zip", done, 100_000_000)
                time.sleep(0.06)
        text = screen.getvalue()
        for words in ("file.zip", "50.0/100.0 MB", "B/s", "0:00:0"):
            assert words in text


class Slow:
    """A fetch of trecqa in a process, from a server that needs half a minute for its first file."""

    def __init__(self, server: FileServer, folder: Path) -> None:
        self.server, self.folder = server, folder
        names = [file.name for file in CATALOGUE["trecqa"].files]
        server.files = {name: Served(BODY + name.encode()) for name in names}
        server.files[names[0]].pause = 0.3
        self.first = folder / names[0]
        self.part = folder / f"{names[0]}.part"

    def command(self) -> list[str]:
        code = "from rss_rl.cli.main import app; app()"
        options = ["--to", str(self.folder), "--mirror", self.server.url]
        return [sys.executable, "-c", code, "data", "fetch", "trecqa", *options]

    def stop(self, number: signal.Signals) -> tuple[int, str]:
        """Start, send a signal when bytes have come, and wait for the end."""
        process = subprocess.Popen(
            self.command(), stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        try:
            deadline = time.monotonic() + 30
            while not (self.part.is_file() and self.part.stat().st_size > 8000):
                assert time.monotonic() < deadline, "no byte came"
                time.sleep(0.02)
            os.kill(process.pid, number)
            _, said = process.communicate(timeout=20)
        finally:
            process.kill()
        return process.returncode, said

    def check_resumes(self) -> None:
        """The next command asks for the rest alone and has every byte."""
        kept = self.part.stat().st_size
        assert 0 < kept < len(BODY)
        self.server.files[self.first.name].pause = 0
        self.server.asked.clear()
        result = run("fetch", "trecqa", "--to", self.folder, "--mirror", self.server.url)
        assert result.exit_code == 0, result.output
        assert self.server.ranges() == [f"bytes={kept}-", None, None]
        for name, served in self.server.files.items():
            assert (self.folder / name).read_bytes() == served.body
        assert not self.part.exists()


def test_a_killed_fetch_goes_on(server: FileServer, tmp_path: Path) -> None:
    slow = Slow(server, tmp_path / "to")
    code, _ = slow.stop(signal.SIGKILL)
    assert code == -signal.SIGKILL
    slow.check_resumes()


def test_ctrl_c_keeps_what_came_and_says_so(server: FileServer, tmp_path: Path) -> None:
    slow = Slow(server, tmp_path / "to")
    code, said = slow.stop(signal.SIGINT)
    assert code == 130
    assert "Traceback" not in said
    assert f"stopped; kept: {slow.part} (" in said
    slow.check_resumes()
