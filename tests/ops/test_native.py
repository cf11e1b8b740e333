"""Where kernels come from: a compiler, the cache, or nowhere."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from rss_rl.ops import native as module
from rss_rl.ops.native import KernelsError, load_kernels, missing_compiler

needs_compiler = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))

LOAD = """
import sys
from pathlib import Path
from rss_rl.ops import native
native._SOURCES = Path(sys.argv[1])
native.load_kernels()
"""


@pytest.fixture
def sources(tmp_path: Path) -> Path:
    """A kernel that compiles at once, in place of ours, which take a core some ten seconds."""
    folder = tmp_path / "sources"
    folder.mkdir()
    (folder / "seven.cpp").write_text('extern "C" int rss_seven() { return 7; }\n')
    return folder


@pytest.fixture
def cache(tmp_path: Path, sources: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "_SOURCES", sources)
    monkeypatch.setenv("RSS_RL_CACHE", str(tmp_path / "kept"))
    return tmp_path / "kept" / "kernels"


def fake(folder: Path, text: str) -> str:
    compiler = folder / "fake-compiler"
    compiler.write_text(f"#!/bin/sh\n{text}\n")
    compiler.chmod(0o755)
    return str(compiler)


@needs_compiler
def test_what_one_process_compiled_another_loads(
    cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert load_kernels().rss_seven() == 7
    (library,) = cache.iterdir()
    written = library.stat().st_mtime_ns
    module._tried.cache_clear()
    monkeypatch.setattr(module, "_compiled", lambda *_: pytest.fail("compiled again"))
    assert load_kernels().rss_seven() == 7
    assert library.stat().st_mtime_ns == written


@needs_compiler
def test_processes_may_compile_at_once(cache: Path, sources: Path) -> None:
    command = [sys.executable, "-c", LOAD, str(sources)]
    started = [subprocess.Popen(command, stderr=subprocess.PIPE) for _ in range(2)]
    for process in started:
        _, output = process.communicate(timeout=120)
        assert process.returncode == 0, output.decode()
    assert len(list(cache.iterdir())) == 1


@needs_compiler
def test_a_library_that_cannot_be_loaded_is_made_again(cache: Path, sources: Path) -> None:
    load_kernels()
    (library,) = cache.iterdir()
    library.unlink()  # this process has it in memory
    library.write_bytes(b"torn")
    subprocess.run([sys.executable, "-c", LOAD, str(sources)], check=True, timeout=120)
    assert library.stat().st_size > 1000


@needs_compiler
def test_a_cache_that_cannot_be_written_is_done_without(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("RSS_RL_CACHE", str(tmp_path / "file" / "kept"))
    assert load_kernels().rss_seven() == 7


def test_a_missing_compiler_is_named(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(KernelsError, match="no C\\+\\+ compiler 'no-such-compiler'"):
        load_kernels()
    assert not cache.exists()


def test_what_a_compiler_says_is_reported(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    refusing = fake(tmp_path, 'test "$1" = --version || { echo "x: error: too old" >&2; exit 1; }')
    monkeypatch.setenv("CXX", refusing)
    with pytest.raises(KernelsError, match="fake-compiler' cannot compile the kernels: x: error"):
        load_kernels()
    assert missing_compiler() is not None
    assert not list(cache.iterdir())
