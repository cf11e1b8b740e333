"""`rss-rl data list` and `rss-rl data fetch` as typed."""

from __future__ import annotations

import io
import shlex
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest
from file_server import FileServer, Served, file_server
from invoking import Result, invoke

from rss_rl.data.catalogue import catalogue
from rss_rl.data.sources import known_sources
from rss_rl.data.store import open_prepared

CATALOGUE = catalogue()


def run(*arguments: object) -> Result:
    return invoke(["data", *(str(argument) for argument in arguments)])


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
        for word in ("549,367", "CC BY-SA 4.0", "94.6", "by hand", "generated", "answer-sentence"):
            assert word in text
        assert "…" not in text

    def test_one_is_shown_whole(self) -> None:
        text = run("list", "snli").output
        for file in CATALOGUE["snli"].files:
            assert file.url in text
            assert str(file.sha256) in text
        for words in ("train: 549367", "size: 94550081", "get: rss-rl data fetch snli"):
            assert words in text
        assert "nothing: it is generated" in run("list", "planted").output
        included = run("list", "product-reviews").output
        assert "nothing: it is included" in included
        assert "--from" not in included


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
    def test_what_it_leaves_is_what_the_last_line_prepares(
        self, server: FileServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        monkeypatch.chdir(tmp_path)
        sick_zips(server)
        result = run("fetch", "sick-relatedness", "--mirror", server.url)
        assert result.exit_code == 0, result.output
        *lines, command = result.stdout.splitlines()
        assert "with no published one to compare" in "\n".join(lines)
        assert "CC BY-NC-SA 3.0" in lines[-2]
        program, *arguments = shlex.split(command)
        assert program == "rss-rl"
        prepared = invoke(arguments)
        assert prepared.exit_code == 0, prepared.output
        assert open_prepared(arguments[-1]).manifest.splits["train"].rows == 9
        again = run("fetch", "sick-relatedness").stdout.splitlines()
        assert sum("there already" in line for line in again) == sum(server.url in x for x in lines)
        assert again[-1] == command

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            ("snil", "did you mean 'snli'"),
            ("planted", "rss-rl data prepare planted"),
            ("googlenews", "put GoogleNews-vectors-negative300.bin.gz into"),
        ],
    )
    def test_what_cannot_be_fetched_is_explained(
        self, name: str, message: str, tmp_path: Path
    ) -> None:
        result = run("fetch", name, "--to", tmp_path)
        assert result.exit_code == 2
        assert message in result.stderr
