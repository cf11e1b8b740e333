"""What the command line adds to Python functions: results as text or JSON, and exit codes."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter
from rich.console import Console
from rich.table import Table
from rich.text import Text

from rss_rl.api.terminal import SafeConsole, busy, plain_table, say, shell
from rss_rl.errors import DataError, RssError

if TYPE_CHECKING:
    from pandas import DataFrame

    from rss_rl.api.doctor import Finding
    from rss_rl.api.run import Run
    from rss_rl.api.sweep import SweepResult
    from rss_rl.components import Trust
    from rss_rl.inference.explanation import Explanation, MarkedSentence
    from rss_rl.results.trojan import Trojan

Json = Annotated[bool, Parameter(name="--json", help="Print JSON.")]
_WIDTH = 144
_MOST_SHOWN = 10
"""Classes shown; the most probable if there are more."""


def console() -> Console:
    """Standard output; outside a terminal, tables get a fixed width."""
    out = SafeConsole(highlight=False)
    return out if out.is_terminal else SafeConsole(highlight=False, width=_WIDTH)


def echo(text: str) -> None:
    """Print lines as they are."""
    sys.stdout.write(f"{text}\n")


def echo_json(tree: Any) -> None:
    """Print JSON."""
    echo(json.dumps(tree, indent=2, ensure_ascii=False, default=str))


def fitted(call: Callable[..., Run]) -> None:
    """Train, print the report, and write it as a page."""
    from rss_rl.results.report_page import write_report_page
    from rss_rl.runs.run_directory import PAGE_FILE

    run, out = trained(call), console()
    with busy(out, "writing the report"):
        page = write_report_page(run.paths, run.paths[0] / PAGE_FILE, trust=run.trust)
    say(out, f"\nOpen:    {page.absolute()}")


def trained(call: Callable[..., Run]) -> Run:
    """Train, and print the report.

    Raises:
        SystemExit: the run was stopped by a signal; 130 after Ctrl-C, 143 after SIGTERM.
    """
    from rss_rl.results.frame import runs_frame

    out = console()
    run = call(console=out)
    if run.stopped_by is not None:
        raise SystemExit(128 + run.stopped_by)
    if len(run.paths) > 1:
        _print_frame(out, runs_frame(run.paths, run.trust), "test", run.trust)
    else:
        print_report(out, run.path, run.report)
    return run


def swept(call: Callable[..., SweepResult]) -> None:
    """Sweep; runs that failed make an exit code of 1."""
    result = call(console=console())
    if result.stopped_by is not None:
        raise SystemExit(128 + result.stopped_by)
    if result.failed:
        raise SystemExit(1)


def written(call: Callable[..., Path]) -> None:
    """Write a file or folder, and say where and how large it is."""
    path = call()
    files = path.rglob("*") if path.is_dir() else [path]
    size = sum(file.stat().st_size for file in files if file.is_file())
    say(console(), f"wrote {path}, {size / 1e6:.1f} MB")


def checked(call: Callable[..., list[Finding]]) -> None:
    """Print findings; a problem makes an exit code of 1."""
    findings = call()
    for name, what, remedy in findings:
        say(console(), f"{'PROBLEM' if remedy else 'ok':8} {name:14} {what}")
        if remedy:
            say(console(), f"{'':8} {'':14} -> {remedy}")
    if any(finding.remedy for finding in findings):
        raise SystemExit(1)


def evaluated(call: Callable[..., dict[str, dict[str, Any]]], *, json_: Json = False) -> None:
    """Print a table of scores for each run, and whether its kept words decide."""
    from rss_rl.results.sentences import trojan_warning
    from rss_rl.results.tables import mode_cells, modes_frame
    from rss_rl.results.trojan import run_trojan

    runs, out = call(), console()
    if json_:
        echo_json(runs)
        return
    arguments = call.keywords  # type: ignore[attr-defined]
    split = arguments.get("split", "test")
    how = {key: arguments[key] for key in ("which", "device") if key in arguments}
    for name, scores in runs.items():
        out.print(plain_table(*mode_cells(modes_frame(scores), name), left=1), "")
        if "thresholded" in scores:
            with busy(SafeConsole(stderr=True), "whether the kept words decide"):
                trojan = run_trojan(Path(name), split, trust=_trust(call), **how)
            _print_trojan(out, trojan, split)
            if warning := trojan_warning(trojan):
                say(out, f"Warning: {warning}", "yellow")


def print_report(out: Console, run: Path, report: Mapping[str, Any]) -> None:
    """Print the final report of a run, and commands to continue with."""
    from rss_rl.data.manifest import Manifest
    from rss_rl.metrics.measures import score_sentences
    from rss_rl.results.sentences import interval_sentence, marks_sentence, rows_sentence
    from rss_rl.results.tables import mode_cells, modes_frame, modes_note
    from rss_rl.runs.run_directory import RunDirectory

    for split, modes in report["splits"].items():
        out.print(plain_table(*mode_cells(modes_frame(modes), split), left=1), "")
    say(out, modes_note(mode for modes in report["splits"].values() for mode in modes), "dim")
    say(
        out,
        f"{report['parameters']:,} parameters without embeddings; {report['steps']:,} updates, "
        f"best on dev at {report['best_step']:,}; {report['wall_seconds']:,.0f} s, "
        f"{report['examples_per_second']:,.0f} examples/s; seed {report['seed']}\n",
    )
    split, modes = list(report["splits"].items())[-1]
    said: list[str | None] = [*score_sentences(modes, "accuracy", split)]
    with suppress(DataError):  # the scores are enough
        info = Manifest.load(RunDirectory.open(run).inputs).splits[split]
        said.append(interval_sentence(modes, info, split))
    if "learning_curve" in report and "accuracy" in modes.get("thresholded", {}):
        said.append(rows_sentence(report["learning_curve"], "accuracy"))
    for line in filter(None, (*said, marks_sentence(modes))):
        say(out, line)
    if split in report.get("trojan", {}):
        _print_trojan(out, report["trojan"][split], split)
    say(out, f"\nRun:     {run}")
    say(out, f"Curves:  {shell('tensorboard', '--logdir', run)}")
    say(out, f'Try it:  {shell("rss-rl", "select", run)} "..."')


def _print_trojan(out: Console, trojan: Trojan | None, split: str) -> None:
    """Print the section that says whether the kept words decide."""
    from rss_rl.results.sentences import trojan_sentences
    from rss_rl.results.tables import word_cells

    say(out, "\nDo the words decide?", "bold")
    for line in trojan_sentences(trojan, split):
        say(out, line)
    if trojan is not None and trojan["words"]:
        say(out, "Words whose keeping depends most on the prediction:\n")
        out.print(plain_table(*word_cells(trojan["words"]), left=1))


_Table = tuple[str, list[str], list[list[str]], int]
"""Title, header and body, and how many columns are aligned on the left."""


def reported(call: Callable[..., DataFrame]) -> None:
    """Print the report of a run, or groups of runs side by side."""
    split = call.keywords.get("split", "test")  # type: ignore[attr-defined]
    _print_frame(console(), call(), split, _trust(call))


def _print_frame(out: Console, frame: DataFrame, split: str, trust: Trust) -> None:
    from rss_rl.results.sentences import run_warnings, still_training
    from rss_rl.results.tables import modes_note
    from rss_rl.runs.run_directory import RunDirectory

    shares = frame[frame["finished"]].groupby("run", sort=False)["reward.target_share"].first()
    reports = {Path(run): RunDirectory.open(Path(run)).read_report() for run in shares.index}
    if frame["run"].nunique() == len(reports) == 1:
        ((run, report),) = reports.items()
        _look_for_code(run, report, trust)
        print_report(out, run, report)
    else:
        for heading, tables in _parts(frame, split):
            say(out, f"\n{heading}", "bold")
            for title, header, body, left in tables:
                say(out, f"\n{title}:\n")
                out.print(plain_table(header, body, left=left))
        say(out, f"\n{modes_note(frame['mode'])}", "dim")
    for line in still_training(frame):
        say(out, f"Note: {line}", "yellow")
    for (run, report), share in zip(reports.items(), shares, strict=True):
        for warning in run_warnings(report, share):
            say(out, f"Warning: {run}: {warning}", "yellow")


def _look_for_code(run: Path, report: dict[str, Any], trust: Trust) -> None:
    """Add whether the kept words decide to a report that does not say it, if its data are there."""
    from rss_rl.results.trojan import run_trojan

    split, modes = [*report["splits"].items()][-1]
    known = report.setdefault("trojan", {})
    if split in known or "thresholded" not in modes:
        return
    out = SafeConsole(stderr=True)
    try:
        with busy(out, "whether the kept words decide"):
            known[split] = run_trojan(run, split, trust=trust)
    except RssError as error:
        say(out, f"Whether the kept words decide is not known: {error}", "yellow")


def _trust(call: Any) -> Trust:
    """What the arguments of a command trust."""
    from rss_rl.components import EVERYTHING, NOTHING

    return EVERYTHING if call.keywords.get("trust_plugins") else NOTHING


def _parts(frame: DataFrame, split: str) -> Iterator[tuple[str, Iterator[_Table]]]:
    """A heading, and tables, for each data that runs were trained on."""
    from rss_rl.results.frame import grouped, with_groups

    frame, means = with_groups(frame), grouped(frame)
    for _, runs in frame.groupby("data_sha256", sort=False):
        scores = means[means["group"].isin(runs["group"])]
        yield f"Data: {', '.join(runs['data'].unique())}", _tables(runs, scores, split)


def _tables(runs: DataFrame, means: DataFrame, split: str) -> Iterator[_Table]:
    from rss_rl.results.tables import differing_settings, line_cells, mode_cells

    members = []
    for group, lines in runs.groupby("group"):
        finished, paths = lines.loc[lines["finished"], "run"].nunique(), lines["run"].unique()
        others = f" and {len(paths) - 1} more" if len(paths) > 1 else ""
        members.append([str(group), f"{finished} of {len(paths)}", f"{paths[0]}{others}"])
    title = "Groups: runs that differ only in the seed"
    yield title, ["group", "finished", "runs"], members, 3
    settings = differing_settings(runs)
    if len(settings):
        body = [[key, *values] for key, *values in settings.itertuples()]
        yield "Settings that differ", ["setting", *map(str, settings)], body, 1
    if len(members) == 1:
        for name, lines in means.groupby("split", sort=False):
            yield "Mean (standard deviation) over runs", *mode_cells(lines, str(name)), 1
    else:
        splits = [split] if runs["finished"].all() else dict.fromkeys(["dev", split])
        for name in splits:
            title = f"On {name}, mean (standard deviation) over runs"
            yield title, *line_cells(means[means["split"] == name]), 2


def selected(call: Callable[..., Explanation], *, json_: Json = False) -> None:
    """Print what a model selects in a text."""
    explanation = call()
    if json_:
        echo_json(explanation.to_dict())
    else:
        print_explanation(console(), explanation)


def print_explanation(out: Console, explanation: Explanation) -> None:
    """Print the sentences with kept words marked, a table of tokens, and the prediction."""
    for sentence in explanation.sentences:
        out.print(_marked(sentence), soft_wrap=True)
    for sentence in explanation.sentences:
        out.print()
        out.print(_token_table(sentence))
    out.print()
    if any(not sentence.known.all() for sentence in explanation.sentences):
        say(out, "? not in the vocabulary", "dim")
    if any(sentence.kept.any() for sentence in explanation.sentences):
        say(out, f"kept {explanation.kept:.0%} of the tokens (in brackets above)")
    else:
        say(out, "no token was kept")
    if explanation.note:
        say(out, f"Warning: {explanation.note}", "yellow")
    if explanation.prediction is None:
        say(out, "no prediction: the run trained no classifier", "dim")
        return
    if explanation.class_probabilities is None:
        say(out, f"prediction: {explanation.prediction:.3f}", "bold")
        return
    out.print(Text("prediction: ").append(str(explanation.prediction), "bold"))
    shown = list(explanation.class_probabilities.items())
    if len(shown) > _MOST_SHOWN:
        shown = sorted(shown, key=lambda item: -item[1])[:_MOST_SHOWN]
    for name, share in shown:
        out.print(Text(f"  {name:16} {share:6.1%} ").append("█" * round(share * 30), "cyan"))


def _marked(sentence: MarkedSentence) -> Text:
    """The words on a line, kept ones in bold and in brackets."""
    line = Text()
    for index in range(len(sentence.words)):
        kept = bool(sentence.kept[index])
        shown = _shown(sentence, index)
        line.append(f"[{shown}]" if kept else shown, "bold green" if kept else "dim").append(" ")
    return line


def _token_table(sentence: MarkedSentence) -> Table:
    from rss_rl.types import DEPENDENT, HEAD

    roles = {"head": HEAD, "dependent": DEPENDENT}
    bits = sentence.selection, sentence.probabilities
    if all(part is None or (part[HEAD] == part[DEPENDENT]).all() for part in bits):
        roles = {"kept": HEAD}  # of a policy that draws one bit for both
    table = plain_table(["token", *roles], left=1)
    for index in range(len(sentence.words)):
        kept = bool(sentence.kept[index])
        cells = [_cell(sentence, role, index) for role in roles.values()]
        table.add_row(Text(_shown(sentence, index), "bold green" if kept else "dim"), *cells)
    return table


def _shown(sentence: MarkedSentence, index: int) -> str:
    """A word, with a question mark if it is not in the vocabulary."""
    return sentence.words[index] + ("" if sentence.known[index] else "?")


def _cell(sentence: MarkedSentence, role: int, index: int) -> Text:
    """Probability of one role, and whether it is selected."""
    selected = bool(sentence.selection[role, index])
    mark = "●" if selected else "·"
    share = "" if sentence.probabilities is None else f"{sentence.probabilities[role, index]:.2f} "
    return Text(f"{share}{mark}", "bold green" if selected else "dim")
