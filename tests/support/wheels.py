"""A wheel of the checkout in an environment of its own."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import venv
from collections.abc import Mapping
from pathlib import Path


def run(*command: object, cwd: Path, more: Mapping[str, str] | None = None) -> str:
    """Run a command with `more` variables, and none that could lead it back to the checkout."""
    environment = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL"))}
    environment |= more or {}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=cwd,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def copy_of_checkout(repository: Path, target: Path) -> Path:
    """What git would hand out, so that the build leaves nothing in the checkout."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    listed = subprocess.run(command, cwd=repository, capture_output=True, text=True, check=True)
    for name in filter(None, listed.stdout.split("\0")):
        source = repository / name
        if source.is_symlink():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).symlink_to(source.readlink())
        elif source.is_file():
            (target / name).parent.mkdir(parents=True, exist_ok=True)
            (target / name).write_bytes(source.read_bytes())
    return target


def install_wheel(repository: Path, root: Path) -> Path:
    """The bin directory of an environment that holds the wheel, and the dependencies by path."""
    source = copy_of_checkout(repository, root / "source")
    build = ("-m", "build", "--wheel", "--no-isolation", "--outdir", root / "dist")
    run(sys.executable, *build, cwd=source)
    (wheel,) = (root / "dist").glob("rss_rl-*.whl")
    home = root / "environment"
    venv.create(home, symlinks=True)
    paths = {"base": str(home), "platbase": str(home)}
    packages = Path(sysconfig.get_path("purelib", vars=paths))
    # Added as a plain path: its own .pth files, the editable install among them, are not run.
    (packages / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    python = home / "bin" / "python"
    pip = ("-m", "pip", "--python", python, "install", "--no-deps", "--no-index", "--quiet")
    run(sys.executable, *pip, wheel, cwd=root)
    return home / "bin"
