"""A built wheel works in a fresh environment, away from the checkout."""

from __future__ import annotations

import re
from pathlib import Path

from compiling import needs_compiler
from wheels import run


def test_packages_come_from_the_wheel(installed: Path, repository: Path, tmp_path: Path) -> None:
    code = (
        "import rss_rl, rss_rl.envs, rss_rl.learners\n"
        "from rss_rl.packaged import configs_root, find_config, find_sweep\n"
        "from rss_rl.packaged import packaged_configs, packaged_sweeps\n"
        "print(rss_rl.envs.__file__, rss_rl.learners.__file__)\n"
        "print(rss_rl.__file__, rss_rl.__version__)\n"
        "print(*map(find_config, packaged_configs()), *map(find_sweep, packaged_sweeps()),"
        " *configs_root().glob('sweeps/*.csv'))"
    )
    *first, second = run(installed / "python", "-c", code, cwd=tmp_path).splitlines()
    *files, version = " ".join(first).split()
    configs = second.split()
    for file in (*files, *configs):
        assert Path(file).is_relative_to(installed.parent), file
    assert version == "0.1.0"
    shipped = {
        path.relative_to(repository / "configs") for path in (repository / "configs").rglob("*.*")
    }
    root = Path(files[2]).parent / "configs"
    assert {Path(file).relative_to(root) for file in configs} == shipped


def test_the_command_works(installed: Path, tmp_path: Path) -> None:
    assert "train" in run(installed / "rss-rl", "--help", cwd=tmp_path)
    assert "phases" in run(installed / "rss-rl", "config", "show", "demo", cwd=tmp_path)


def test_a_job_would_be_sent_its_code(installed: Path, tmp_path: Path) -> None:
    places = ("data=s3://bucket/data", "--storage", "s3://bucket/run")
    shown = run(installed / "rss-rl", "submit", "demo", *places, "--dry-run", cwd=tmp_path)
    sources = [path for path in installed.parent.rglob("rss_rl/**/*.py") if path.is_file()]
    size = re.search(r"Code: ([\d.]+) MB", shown)
    assert size is not None
    assert len(sources) > 50
    assert 1e6 * float(size[1]) > sum(path.stat().st_size for path in sources)
    assert "s3://bucket/data" in shown


def test_the_parts_of_the_pages_travel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from importlib.resources import files\n"
        "print(*sorted(part.name for part in files('rss_rl.pages').iterdir()))"
    )
    names = run(installed / "python", "-c", code, cwd=tmp_path).split()
    assert {"look.css", "theme.js", "explanation.html", "report.html"} <= set(names)
    assert {"serve.html", "serve.css", "serve.js", "words.css"} <= set(names)


def test_the_reviews_travel_with_their_licence(installed: Path, tmp_path: Path) -> None:
    code = (
        "from rss_rl.data.sources import SourceRequest, named_source\n"
        "reviews = named_source('product-reviews', SourceRequest())\n"
        "(file,) = reviews.splits['test']\n"
        "print(len(list(reviews.read('test'))))\n"
        "print(file.with_name('product_reviews.LICENSE.txt').read_text())"
    )
    rows, licence = run(installed / "python", "-c", code, cwd=tmp_path).split("\n", 1)
    assert rows == "426"
    assert "Copyright (c) 2016 C.J. Hutto" in licence


@needs_compiler
def test_the_sources_of_the_kernels_travel(installed: Path, tmp_path: Path) -> None:
    code = (
        "from rss_rl.ops.native import load_kernels\n"
        "print(load_kernels().rss_dropout_float.__name__)"
    )
    cache = {"RSS_RL_CACHE": str(tmp_path / "cache")}
    assert "dropout" in run(installed / "python", "-c", code, cwd=tmp_path, more=cache)
