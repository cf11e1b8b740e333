"""Builds the documentation site: `python docs/build_site.py [--out site]`, or `make docs`.

The pages keep the paths that they have in the repository, so that a link holds on disk and in the
site alike. The reference is written by the program itself. A broken link, a missing page, a page
that the navigation leaves out, or anything that a browser would fetch from elsewhere is an error.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any
from urllib.parse import unquote, urldefrag

from reference_pages import reference_pages

REPOSITORY = Path(__file__).resolve().parent.parent
SETTINGS = "zensical.toml"
FETCHED = {"img": "src", "link": "href", "script": "src", "source": "src", "iframe": "src"}
"""Tags, and the attribute whose address a browser fetches by itself."""

VERBATIM = ("code", "pre", "script", "style")
UNREAD = re.compile(r"^\|.*\|$|^- .*|^```.*|.*\*\*.*", re.MULTILINE)
"""Markdown in the text of a page, such as a table that was not recognised as one."""


def gather(pages: Path) -> list[str]:
    """Copy or write every page, and what the pages show; returns the pages' paths."""
    sources = [REPOSITORY / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md")]
    sources += sorted((REPOSITORY / "docs").rglob("*.md"))
    texts = {
        source.relative_to(REPOSITORY).as_posix().replace("README.md", "index.md"): source
        for source in sources
    }
    for name, source in texts.items():
        text = source.read_text(encoding="utf-8")
        (pages / name).parent.mkdir(parents=True, exist_ok=True)
        # GitHub draws graphs in Mermaid; the site loads no such program and lists the arrows.
        (pages / name).write_text(text.replace("```mermaid", "```text"), encoding="utf-8")
        for target in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text):
            picture = Path(os.path.normpath(source.parent / target))
            _place(picture, pages / picture.relative_to(REPOSITORY))
    for source in sorted((REPOSITORY / "docs").rglob("*.ipynb")):
        path = (pages / source.relative_to(REPOSITORY)).with_suffix(".md")
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(_notebook_page(source), encoding="utf-8")
        texts[path.relative_to(pages).as_posix()] = source
        _place(source, path.with_suffix(".ipynb"))  # to be downloaded
    generated = reference_pages()
    for name, text in generated.items():
        path = pages / "reference" / name
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return [*texts, *(f"reference/{name}" for name in generated)]


def _notebook_page(source: Path) -> str:
    """The cells of a notebook as Markdown, without what they put out."""
    parts = []
    for cell in json.loads(source.read_text(encoding="utf-8"))["cells"]:
        text = "".join(cell["source"])
        parts.append(text if cell["cell_type"] == "markdown" else f"```python\n{text}\n```")
    title, *rest = parts
    return "\n\n".join([title, f"[This page as a notebook]({source.name})", *rest]) + "\n"


def _place(source: Path, target: Path) -> None:
    target.parent.mkdir(parents=True, exist_ok=True)
    shutil.copyfile(source, target)


def named(nav: list[dict[str, Any]]) -> Iterator[str]:
    """The pages that a navigation names."""
    for entry in nav:
        for value in entry.values():
            if isinstance(value, str):
                yield value
            else:
                yield from named(value)


class _Page(HTMLParser):
    """Where a page can be entered, where it leads, and what it fetches."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.unread: list[str] = []
        self._verbatim = 0
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = {name: value for name, value in attrs if value is not None}
        self.anchors |= {found[name] for name in ("id", "name") if name in found}
        if tag == "a" and "href" in found:
            self.links.append(found["href"])
        if tag in FETCHED and FETCHED[tag] in found and found.get("rel") != "canonical":
            self.fetched.append(found[FETCHED[tag]])
        self._verbatim += tag in VERBATIM

    def handle_endtag(self, tag: str) -> None:
        self._verbatim -= tag in VERBATIM

    def handle_data(self, data: str) -> None:
        if not self._verbatim:
            self.unread += UNREAD.findall(data)


def _elsewhere(address: str) -> bool:
    return address.startswith("//") or bool(re.match(r"[a-zA-Z][\w+.-]*:", address))


def faults(site: Path) -> list[str]:
    """Links of a built site that lead nowhere, and what it would fetch from elsewhere."""
    pages = {
        path.resolve(): _Page(path.read_text(encoding="utf-8")) for path in site.rglob("*.html")
    }
    found = []
    for path, page in pages.items():
        name = path.relative_to(site.resolve())
        far = [address for address in page.fetched if _elsewhere(address)]
        found += [
            f"{name}: fetches {address}" for address in far if not address.startswith("data:")
        ]
        found += [f"{name}: is shown as it was written: {line}" for line in page.unread]
        if name.name == "404.html":  # its links are from the root of a server
            continue
        for address in {*page.links, *page.fetched}:
            if _elsewhere(address):
                continue
            file, anchor = urldefrag(address)
            target = (path.parent / unquote(file.partition("?")[0])).resolve() if file else path
            target = target / "index.html" if target.is_dir() else target
            if not target.exists():
                found.append(f"{name}: {address} leads nowhere")
            elif anchor and target in pages and unquote(anchor) not in pages[target].anchors:
                found.append(f"{name}: {address} names no part of that page")
    return sorted(found)


def build(out: Path) -> list[str]:
    """Build the site into `out`, replacing it; returns what is wrong with it."""
    settings = tomllib.loads((REPOSITORY / SETTINGS).read_text(encoding="utf-8"))["project"]
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        shutil.copyfile(REPOSITORY / SETTINGS, root / SETTINGS)
        (root / "rss_rl").symlink_to(REPOSITORY / "rss_rl")  # whose docstrings are read
        pages = set(gather(root / settings["docs_dir"]))
        in_navigation = set(named(settings["nav"]))
        wrong = [f"{page} is not in the navigation" for page in sorted(pages - in_navigation)]
        wrong += [f"{page} is in the navigation and missing" for page in in_navigation - pages]
        command = [sys.executable, "-m", "zensical", "build", "--clean", "--strict"]
        if subprocess.run(command, cwd=root, check=False).returncode:
            return [*wrong, "zensical reported the above"]
        if out.is_dir() and any(out.iterdir()) and not (out / "404.html").is_file():
            return [*wrong, f"{out} holds something else than an earlier site: name another folder"]
        shutil.rmtree(out, ignore_errors=True)
        shutil.copytree(root / settings["site_dir"], out)
    return wrong + faults(out)


def main() -> int:
    """Build, and say what is wrong."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=Path, default=REPOSITORY / "site", help="default: site")
    out = parser.parse_args().out
    wrong = build(out)
    for line in wrong:
        sys.stderr.write(f"error: {line}\n")
    if not wrong:
        sys.stdout.write(f"The site is in {out}: open index.html. ")
        sys.stdout.write(f"To search it: python -m http.server --directory {out}\n")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
