"""The kernels' tests once more, with kernels that sanitizers watch, and without AVX-512.

A child process runs them with AddressSanitizer and UndefinedBehaviorSanitizer, which must be there
before Python is: what goes out of bounds, by one float, or is undefined ends it. Parts of vectors
are read by masked instructions where there is AVX-512, which are not watched, and are copied where
there is AVX2 alone.
"""

from __future__ import annotations

import os
import platform
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from rss_rl.ops.native import missing_compiler

COMPILER = os.environ.get("CXX") or "g++"
SANITIZED = "-g1 -fsanitize=address,undefined -fno-sanitize-recover=undefined"
AVX2 = "-march=x86-64-v3"
TESTS = (
    *("ops/test_attention_compiled.py", "ops/test_attention_native.py", "ops/test_directions.py"),
    *("ops/test_linear_maps.py", "ops/test_operators.py"),
    *("ops/test_packing.py", "ops/test_pooling.py"),
    *("models/test_dropout.py", "learners/test_adadelta.py"),
)


def runtime(name: str) -> Path | None:
    """A library of the compiler's, if it has it."""
    if missing_compiler() is not None or shutil.which(COMPILER) is None:
        return None
    found = subprocess.run(
        [COMPILER, f"-print-file-name={name}"], capture_output=True, text=True, check=True
    )
    path = Path(found.stdout.strip())
    return path.resolve() if path.is_absolute() and path.exists() else None


LIBRARIES = [runtime(name) for name in ("libasan.so", "libubsan.so", "libstdc++.so")]
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(1500),
    pytest.mark.skipif(None in LIBRARIES, reason=f"{COMPILER} has no sanitizers"),
]
NATIVE = pytest.param("-march=native", id="native")
WITHOUT_AVX512 = pytest.param(
    AVX2,
    id="avx2",
    marks=pytest.mark.skipif(
        platform.machine() not in ("x86_64", "AMD64"), reason="AVX2 is x86-64's"
    ),
)


def child(arguments: list[str], flags: str, repository: Path) -> subprocess.CompletedProcess[str]:
    """Of Python with kernels of these flags, whose sanitizers end it with status 99."""
    variables = os.environ | {
        "ASAN_OPTIONS": "detect_leaks=0:exitcode=99",
        "UBSAN_OPTIONS": "print_stacktrace=1:exitcode=99",
        "RSS_RL_KERNEL_FLAGS": flags,
    }
    preloaded = {"LD_PRELOAD": ":".join(str(library) for library in LIBRARIES)}

    def run(arguments: list[str], more: dict[str, str]) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            [sys.executable, *arguments],
            cwd=repository,
            env=variables | more,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=1400,
        )

    # The compiler would be watched, too, and take several times as long: it is run without. What it
    # has made ends this process, which has no runtime for it, and waits in the cache.
    run(["-c", "from rss_rl.ops.native import load_kernels; load_kernels()"], {})
    return run(arguments, preloaded)


@pytest.mark.parametrize("machine", [NATIVE, WITHOUT_AVX512])
def test_kernels_stay_within_what_they_are_given(machine: str, repository: Path) -> None:
    # What ends a process leaves no time to show what was captured.
    options = ["-q", "-x", "-s", "-p", "no:cacheprovider", "--timeout=900"]
    files = [f"tests/{name}" for name in TESTS]
    done = child(["-m", "pytest", *options, *files], f"{machine} {SANITIZED}", repository)
    assert done.returncode == 0, f"{done.stdout[-6000:]}\n{done.stderr[-6000:]}"
    assert " passed" in done.stdout.splitlines()[-1]
