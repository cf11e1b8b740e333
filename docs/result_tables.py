"""Writes the tables of results into the documents: `python docs/result_tables.py [--check]`.

README.md and the pages of docs hold tables between `<!-- table: NAME from FILE, FILE -->` and
`<!-- end -->`. The files are CSVs of tests/benchmarks/results, and published.csv of the room
results/sweeps. result_tables.yaml beside this file says what stands in the columns of each table:

columns    heading and cell of each. A cell holds fields, `{WORD/COLUMN:FORM}`: the figure of COLUMN
           in the lines that have each WORD in a cell, or without FORM its text. A cell is empty
           where one is missing; rows whose first cell is empty are left out
rows       in place of cells in `columns`: the cells of each row, which read all lines
where      words that each line has
each_line  each line is a row; otherwise lines with the same `row` are

A line of a CSV is one run, or with a column `runs` the summary of so many, its deviations in
columns `..._sd`. Where a summary is given, it counts. A line of published.csv is one figure.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import functools
import re
import statistics
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from string import Formatter
from typing import Any

import yaml

from rss_rl.errors import RssError

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = Path("tests/benchmarks/results")
LAYOUTS = Path("docs/result_tables.yaml")
PUBLISHED = Path("rss_rl/results/sweeps/published.csv")
BLOCK = re.compile(
    r"<!-- table: (?P<name>\S+) from (?P<files>[^>]+) -->\n(?:(?!<!-- table:).)*?<!-- end -->",
    re.DOTALL,
)
FORM = re.compile(r"(?P<zero>0?)\.(?P<places>\d)(?P<unit>%|p|M|)(?P<mean>m?)")
"""Of a figure: `.4` is .8630, `0.1` is 0.8, `0.1%` is 40.1%, `0.1p` is 40.1, `0.2M` is 2.77 M;
with an `m` behind it without the deviation."""
SCALES = {"": 1, "%": 100, "p": 100, "M": 1e-6}

Line = Mapping[str, str]
"""The filled cells of a line of a CSV, by column."""


def documents(root: Path) -> list[Path]:
    """README and all pages."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def rewritten(document: Path, root: Path) -> str:
    """A document with all its tables as they follow from the CSVs.

    Raises:
        RssError: a table, file or column is missing.
    """

    def block(found: re.Match[str]) -> str:
        names = [name.strip() for name in found["files"].split(",")]
        files = [root / (PUBLISHED if n == PUBLISHED.name else RESULTS / n) for n in names]
        opening = found[0].partition("\n")[0]
        return f"{opening}\n\n{rendered(found['name'], files, root)}\n\n<!-- end -->"

    return BLOCK.sub(block, document.read_text(encoding="utf-8"))


def rendered(name: str, files: Sequence[Path], root: Path) -> str:
    """A table as Markdown.

    Raises:
        RssError: the table, a file or a column is missing.
    """
    layouts = read_layouts(root / LAYOUTS)
    if name not in layouts:
        raise RssError(f"there is no table '{name}'", where=str(LAYOUTS))
    layout = layouts[name]
    found = [line for file in files for line in read_lines(file)]
    found = [line for line in found if set(layout.get("where", ())) <= set(line.values())]
    header = [column[0] for column in layout["columns"]]
    rows = layout.get("rows")
    body = [[cell(part, found) for part in row] for row in rows] if rows else grouped(layout, found)
    for number, title in enumerate(header):
        cells = [row[number] for row in body]
        if not (all(cells) if rows else any(cells)):
            raise RssError(f"the column '{title}' has no figures", where=f"{LAYOUTS}, {name}")
    return "\n".join(map(markdown_row, (header, ["---"] * len(header), *body)))


@functools.cache
def read_layouts(file: Path) -> dict[str, dict[str, Any]]:
    """The tables of result_tables.yaml."""
    found: dict[str, dict[str, Any]] = yaml.safe_load(file.read_text(encoding="utf-8"))
    return found


def markdown_row(cells: Sequence[str]) -> str:
    """A row of a table; bars in cells are escaped."""
    return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"


def grouped(layout: Mapping[str, Any], found: Sequence[Line]) -> list[list[str]]:
    """The cells of a table whose rows are groups of lines."""
    groups: dict[str, list[Line]] = {}
    for number, line in enumerate(found):
        groups.setdefault(str(number) if layout.get("each_line") else line["row"], []).append(line)
    body = [[cell(part, lines) for _, part in layout["columns"]] for lines in groups.values()]
    return [row for row in body if row[0]]


def read_lines(file: Path) -> list[Line]:
    """The lines of a CSV; the place of a run of a cross validation is taken apart."""
    if not file.is_file():
        raise RssError("a document names a missing file", where=str(file))
    with file.open(encoding="utf-8", newline="") as opened:
        lines = [{k: v for k, v in line.items() if v} for line in csv.DictReader(opened)]
    if file.name == PUBLISHED.name:
        return [
            {"split": "published", "place": line["dataset"], "row": line["model"]}
            | {line["metric"]: line["value"]}
            for line in lines
        ]
    for line in lines:
        if "place" in line:
            line["place"], _, line["fold"] = line["place"].partition("-fold-")
    return lines


def cell(template: str, lines: Sequence[Line]) -> str:
    """A template with its fields filled in, or nothing where a figure is missing."""
    parts = []
    for literal, field, form, _ in Formatter().parse(template):
        parts.append(literal)
        if field is None:
            continue
        *words, column = field.split("/")
        found = [line for line in lines if column in line and set(words) <= set(line.values())]
        asked = "published" in words
        found = [line for line in found if asked == (line.get("split") == "published")]
        if not found:
            return ""
        parts.append(shown(found, column, form) if form else found[0][column])
    return "".join(parts)


def shown(lines: Sequence[Line], column: str, form: str) -> str:
    """Mean and deviation of a column over runs, or as a summary has them.

    Raises:
        RssError: the lines are of several rows, or the form is unknown.
    """
    parts = FORM.fullmatch(form)
    if parts is None:
        raise RssError(f"a figure has no form '{form}'", where=str(LAYOUTS))
    rows = {(line.get("split"), line.get("place"), line["row"]) for line in lines}
    summaries = [line for line in lines if "runs" in line]
    if len(rows) > 1 or len(summaries) > 1:
        raise RssError(f"{column} has figures of several rows", where=str(sorted(map(str, rows))))
    runs = [float(line[column]) for line in lines]
    figures = [statistics.fmean(runs)] + ([statistics.stdev(runs)] if len(runs) > 1 else [])
    for summary in summaries:
        figures = [float(summary[c]) for c in (column, f"{column}_sd") if c in summary]
    scale, places = SCALES[parts["unit"]], int(parts["places"])
    texts = [f"{scale * figure:.{places}f}" for figure in figures]
    if not parts["zero"]:
        texts = [re.sub(r"\b0\.", ".", text) for text in texts]
    mean = texts[0] + {"%": "%", "M": " M"}.get(parts["unit"], "")
    return mean if parts["mean"] or len(texts) == 1 else f"{mean} ({texts[1]})"


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    """Rewrite the documents, or with `--check` say how they differ."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 on a difference"
    )
    check = parser.parse_args(arguments).check
    differ = False
    for document in documents(root):
        try:
            new = rewritten(document, root)
        except RssError as error:
            sys.stderr.write(f"error: {document.name}: {error}\n")
            return 1
        old = document.read_text(encoding="utf-8")
        differ |= old != new
        if check:
            lines = old.splitlines(keepends=True), new.splitlines(keepends=True)
            sys.stdout.writelines(difflib.unified_diff(*lines, document.name, "from the CSVs", n=0))
        elif old != new:
            document.write_text(new, encoding="utf-8")
    return int(differ and check)


if __name__ == "__main__":
    sys.exit(main())
