"""Writes the tables of results into the documents: `python docs/result_tables.py [--check]`.

README.md and the pages of docs hold tables between `<!-- table: NAME from FILE, FILE -->` and
`<!-- end -->`. The files are CSVs of tests/benchmarks/results; result_tables.yaml beside this file
says what stands in the columns. A line of a CSV is one run, or with a column `runs` the summary of
so many, its deviations in columns `..._sd`. Any other table with decimals needs a reason before it:
`<!-- by hand: WHY -->`.

A sentence that repeats figures is checked, not written. After its paragraph stands
`<!-- figures from FILE, FILE: TEXT ... TEXT -->`: each TEXT, its fields filled in as in a cell of a
table, has to stand in the paragraph word for word. A FILE that ends in .yaml is a table of
configs/tables, for its published figures. In README.md, docs/results and docs/tutorials every
figure has to be in such a TEXT, or in `<!-- not measured: TEXT ... TEXT -->`: settings and shares
asked for.
"""

from __future__ import annotations

import argparse
import csv
import difflib
import functools
import re
import statistics
import sys
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from string import Formatter

from pydantic import Field

from rss_rl.config import Section, parse_section, read_tree
from rss_rl.errors import RssError
from rss_rl.results.output import format_spread, markdown_table
from rss_rl.results.summary import Spread, spread
from rss_rl.results.tables.spec import load_table

REPOSITORY = Path(__file__).resolve().parent.parent
RESULTS = Path("tests/benchmarks/results")
BLOCK = re.compile(
    r"<!-- table: (?P<name>\S+) from (?P<files>[^>]+) -->\n(?:(?!<!-- table:).)*?<!-- end -->",
    re.DOTALL,
)
OTHER = re.compile(r"(?P<reason><!-- by hand: [^>]+ -->\n+)?(?P<table>(?:^\|.*\n)+)", re.MULTILINE)
FIGURES = re.compile(r"<!-- figures from (?P<files>[^:>]+): (?P<texts>[^>]+?) -->")
NOT_MEASURED = re.compile(r"<!-- not measured: (?P<texts>[^>]+?) -->")
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
FENCE = re.compile(r"^( *)```.*?^\1```", re.DOTALL | re.MULTILINE)
PARAGRAPH = re.compile(r"(?:^.*\S.*\n)+", re.MULTILINE)
QUOTED = re.compile(r"`[^`]*`|\]\([^)]*\)")
"""Code, and the addresses of links: figures in them are not results."""
MEASURED = re.compile(
    r"(?<![\w.,])(?<!Python )(?<!CC BY )-?"
    r"(?:\d*\.\d+|\d[\d,]*(?=%| (?:×|(?:points|times|ms|s|seconds|minutes)\b)))"
)
"""A figure that somebody measured: a decimal but for versions, or a number before these units."""
FORM = re.compile(r"(?P<zero>0?)\.(?P<places>\d)(?P<unit>%|p|M|)(?P<mean>m?)")
"""Of a figure: `.4` is .8630, `0.1` is 0.8, `0.1%` is 40.1%, `0.1p` is 40.1, `0.2M` is 2.77 M;
with an `m` behind it without the deviation."""

SCALES = {"": 1, "%": 100, "p": 100, "M": 1e-6}
read_layouts = functools.cache(read_tree)
Line = Mapping[str, str]
"""The filled cells of a line of a CSV, by column."""


class Layout(Section):
    """What stands in a table.

    columns    heading and cell of each. A cell holds fields, `{WORD/COLUMN:FORM}`: the figure of
               COLUMN in the lines that have each WORD in a cell, or without FORM its text. Two with
               ` - ` or ` / ` between them are the difference or ratio of their means. A cell is
               empty where one is missing; rows whose first cell is empty are left out
    where      words that each line has; without: folds that are left out
    published  the table of configs/tables that `{published/DATASET/METRIC:FORM}` reads
    each_line  is a row; otherwise lines with the same `row` are
    rows       in place of cells in `columns`: the cells of each row, which read all lines
    """

    columns: tuple[tuple[str, ...], ...] = Field(strict=False)
    where: tuple[str, ...] = Field(default=(), strict=False)
    without: tuple[str, ...] = Field(default=(), strict=False)
    published: str | None = None
    each_line: bool = False
    rows: tuple[tuple[str, ...], ...] = Field(default=(), strict=False)


def documents(root: Path) -> list[Path]:
    """README and all pages."""
    return [root / "README.md", *sorted((root / "docs").rglob("*.md"))]


def all_measured(document: Path) -> bool:
    """Whether every figure in a sentence of the document has to have a file."""
    return document.name == "README.md" or document.parent.name in ("results", "tutorials")


def rewritten(document: Path, root: Path) -> str:
    """A document with all its tables as they follow from the CSVs.

    Raises:
        RssError: a table or file that is missing, figures that contradict each other, or a table
            with decimals that is neither written by this program nor explained.
    """
    text = document.read_text(encoding="utf-8")
    others = BLOCK.sub(lambda block: "\n" * block[0].count("\n"), text)
    for found in OTHER.finditer(others):
        if re.search(r"\.\d", found["table"]) and not found["reason"]:
            raise RssError(
                "a table with decimals has no CSV",
                where=f"line {others.count(chr(10), 0, found.start()) + 1}",
                remedy="Put it between <!-- table: NAME from FILE --> and <!-- end -->, or "
                "<!-- by hand: WHY --> before it",
            )

    def block(found: re.Match[str]) -> str:
        files = [root / RESULTS / name.strip() for name in found["files"].split(",")]
        opening = found[0].partition("\n")[0]
        return f"{opening}\n\n{rendered(found['name'], files, root)}\n\n<!-- end -->"

    return BLOCK.sub(block, text)


def wrong_sentences(document: Path, root: Path) -> Iterator[str]:
    """What is wrong with the sentences of a document.

    A paragraph does not have what its comments expect of it, or it has a figure that no comment
    accounts for.

    Raises:
        RssError: a comment names a missing file, or figures contradict each other.
    """
    text = document.read_text(encoding="utf-8")
    for skipped in (BLOCK, FENCE, OTHER):
        text = skipped.sub(lambda found: "\n" * found[0].count("\n"), text)
    for found in PARAGRAPH.finditer(text):
        where = f"{document.name}: line {text.count(chr(10), 0, found.start()) + 1}"
        paragraph = " ".join(COMMENT.sub("", found[0]).split())
        left = QUOTED.sub(blank, paragraph)
        for expected in expected_texts(found[0], root):
            places = [*re.finditer(rf"(?<![\d.]){re.escape(expected)}(?!\.?\d)", paragraph)]
            if not places:
                yield f"{where}: the sentence is not '{expected}', which is what its files say"
            for place in places:
                left = left[: place.start()] + blank(place) + left[place.end() :]
        unknown = MEASURED.findall(left) if all_measured(document) else []
        if unknown:
            yield (
                f"{where}: figures without a file: {', '.join(unknown)}; after the paragraph put "
                "<!-- figures from FILE: TEXT --> or <!-- not measured: TEXT -->"
            )


def blank(found: re.Match[str]) -> str:
    """As many spaces as a text has characters."""
    return " " * len(found[0])


def expected_texts(paragraph: str, root: Path) -> Iterator[str]:
    """What the comments of a paragraph say that it has."""
    for found in NOT_MEASURED.finditer(paragraph):
        yield from parted(found)
    for found in FIGURES.finditer(paragraph):
        names = [name.strip() for name in found["files"].split(",")]
        lines = [line for name in names for line in named_lines(name, root)]
        for template in parted(found):
            yield " ".join(cell(template, lines).split()) or template


def parted(comment: re.Match[str]) -> list[str]:
    """The texts of a comment."""
    return " ".join(comment["texts"].split()).split(" ... ")


def named_lines(name: str, root: Path) -> Sequence[Line]:
    """The lines of a CSV, or the published figures of a table of configs/tables."""
    if name.endswith(".yaml"):
        return published_lines(name.removesuffix(".yaml"), root)
    return read_lines(root / RESULTS / name)


def rendered(name: str, files: Sequence[Path], root: Path) -> str:
    """A table as Markdown.

    Raises:
        RssError: the table, a file or a column is missing, or figures contradict each other.
    """
    path = root / "docs" / "result_tables.yaml"
    layouts = read_layouts(path)
    if name not in layouts:
        raise RssError(f"there is no table '{name}'", where=str(path))
    layout = parse_section(Layout, layouts[name], where=f"{path}, {name}")
    found = [line for file in files for line in read_lines(file)]
    found = [
        line
        for line in found
        if set(layout.where) <= set(line.values()) and line.get("fold") not in layout.without
    ]
    header = [column[0] for column in layout.columns]
    body = [[cell(part, found) for part in row] for row in layout.rows] or grouped(
        layout, [*found, *published_lines(layout.published, root)]
    )
    for number, title in enumerate(header):
        cells = [row[number] for row in body]
        if not (all(cells) if layout.rows else any(cells)):
            raise RssError(f"the column '{title}' has no figures", where=f"{path}, {name}")
    return markdown_table(header, body)


def grouped(layout: Layout, found: Sequence[Line]) -> list[list[str]]:
    """The cells of a table whose rows are groups of lines."""
    groups: dict[str, list[Line]] = {}
    for number, line in enumerate(found):
        groups.setdefault(str(number) if layout.each_line else line["row"], []).append(line)
    body = [[cell(part, lines) for _, part in layout.columns] for lines in groups.values()]
    return [row for row in body if row[0]]


def read_lines(file: Path) -> Sequence[Line]:
    """The lines of a CSV; the place of a run of a cross validation is taken apart."""
    if not file.is_file():
        raise RssError("a document names a missing file", where=str(file))
    with file.open(encoding="utf-8", newline="") as opened:
        lines = [{k: v for k, v in line.items() if v} for line in csv.DictReader(opened)]
    for line in lines:
        if "place" in line:
            line["place"], _, line["fold"] = line["place"].partition("-fold-")
    return lines


def published_lines(table: str | None, root: Path) -> Sequence[Line]:
    """The published figures of a table of configs/tables, as lines."""
    if table is None:
        return []
    rows = load_table(root / "configs" / "tables" / f"{table}.yaml").rows
    return [
        {"split": "published", "place": dataset, "row": row.name}
        | {name: str(v[0] if isinstance(v, tuple) else v) for name, v in figures.items()}
        for row in rows
        for dataset, figures in row.published.items()
    ]


def cell(template: str, lines: Sequence[Line]) -> str:
    """A template with its fields filled in, or nothing where a figure is missing."""
    parts = []
    for literal, field, form, _ in Formatter().parse(template):
        parts.append(literal)
        if field is None:
            continue
        names, operator = [field], ""
        for sign in (" - ", " / "):
            if sign in field:
                names, operator = field.split(sign), sign.strip()
        found = [(name.split("/")[-1], chosen(name, lines)) for name in names]
        if not all(lines_of for _, lines_of in found):
            return ""
        if not form:
            [(column, [first, *_])] = found
            parts.append(first[column])
            continue
        figures = [figure(lines_of, column) for column, lines_of in found]
        parts.append(shown(combined(figures, operator), form))
    return "".join(parts)


def chosen(name: str, lines: Sequence[Line]) -> list[Line]:
    """The lines that have each word and the column of `WORD/COLUMN`."""
    *words, column = name.split("/")
    return [
        line
        for line in lines
        if column in line
        and set(words) <= set(line.values())
        and ("published" in words) == (line.get("split") == "published")
    ]


def combined(figures: Sequence[Spread], operator: str) -> Spread:
    """The figure; of two the difference or the ratio of their means."""
    if not operator:
        return figures[0]
    first, second = (found.mean for found in figures)
    return Spread(first - second if operator == "-" else first / second, None)


def shown(found: Spread, form: str) -> str:
    """Mean and deviation in a form."""
    parts = FORM.fullmatch(form)
    if parts is None:
        raise RssError(f"a figure has no form '{form}'", where="result_tables.yaml")
    text = format_spread(found, SCALES[parts["unit"]], int(parts["places"]))
    if not parts["zero"]:
        text = re.sub(r"\b0\.", ".", text)
    mean, space, deviation = text.partition(" ")
    if parts["mean"]:
        space = deviation = ""
    return mean + {"%": "%", "M": " M"}.get(parts["unit"], "") + space + deviation


def figure(lines: Sequence[Line], column: str) -> Spread:
    """Mean and deviation of a column over runs, or as a summary has them.

    Raises:
        RssError: the lines are of several rows, or the runs contradict their summary.
    """
    rows = {(line.get("split"), line.get("place"), line["row"]) for line in lines}
    summaries = [line for line in lines if "runs" in line]
    runs = [float(line[column]) for line in lines if "runs" not in line]
    if len(rows) > 1 or len(summaries) > 1:
        raise RssError(f"{column} has figures of several rows", where=str(sorted(map(str, rows))))
    if not summaries:
        return spread(runs)
    [summary] = summaries
    deviation = summary.get(f"{column}_sd")
    if runs and not possible(runs, int(summary["runs"]), summary[column], deviation or "0"):
        raise RssError(
            f"{column} {summary[column]} ({deviation}) contradicts the runs that are kept, {runs}",
            where=str(rows.pop()),
            remedy="Runs come before summaries: correct the summary, or leave it out",
        )
    return Spread(float(summary[column]), None if deviation is None else float(deviation))


def possible(runs: Sequence[float], count: int, mean: str, deviation: str) -> bool:
    """Whether `count` runs, of which some are known, can have this rounded mean and deviation.

    The squares of k known values with mean a add up, with the n - k unknown ones at their best, to
    Σ(x - a)² + k n / (n - k) (a - m)², and have to be at most (n - 1) s².
    """
    known = len(runs)
    if known >= count:
        return False
    half = {text: 0.5 * 10.0 ** -len(text.partition(".")[2]) for text in (mean, deviation)}
    own = statistics.fmean(runs)
    nearest = min(max(own, float(mean) - half[mean]), float(mean) + half[mean])
    squares = sum((x - own) ** 2 for x in runs)
    squares += known * count / (count - known) * (own - nearest) ** 2
    return squares <= (count - 1) * (float(deviation) + half[deviation]) ** 2


def main(arguments: Sequence[str] | None = None, root: Path = REPOSITORY) -> int:
    """Rewrite the documents, or with `--check` say how they differ, and name wrong sentences."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument(
        "--check", action="store_true", help="write nothing, exit 1 on a difference"
    )
    check = parser.parse_args(arguments).check
    differ = False
    wrong: list[str] = []
    for document in documents(root):
        try:
            new = rewritten(document, root)
            wrong += wrong_sentences(document, root)
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
    sys.stderr.writelines(f"error: {sentence}\n" for sentence in wrong)
    return int(bool(wrong) or (differ and check))


if __name__ == "__main__":
    sys.exit(main())
