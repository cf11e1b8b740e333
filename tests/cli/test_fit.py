"""`rss-rl fit` as a newcomer types it: a table in, a page to open out."""

from __future__ import annotations

import csv
import html
import json
import os
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import static_vectors
import tiny_transformers
from invoking import invoke

import rss_rl
from rss_rl.api.adapting import Default, _share, choose_encoder, guess_task, schedule, within
from rss_rl.api.finetuning import Expected, expect
from rss_rl.config.loading import load_config
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Split, open_prepared
from rss_rl.packaged import find_config
from rss_rl.runs.run_directory import RunDirectory
from rss_rl.training.stopping import Costs

pytestmark = pytest.mark.usefixtures("no_charts")
SMALL = [
    "batch_size=8",
    "model.hidden=4",
    "model.attention=eager",
    "policy.options.hidden=3",
    "evaluation.all_tokens=false",
    "phases.0.steps=4",
    "phases.1.steps=4",
    "phases.2.steps=4",
    "phases.3.steps=4",
]


@pytest.fixture(scope="module")
def table(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("fit") / "reviews.csv"
    with path.open("w", newline="") as file:
        rows = csv.writer(file)
        rows.writerow(["review", "stars"])
        for number in range(120):
            word, label = (("fine", "up"), ("dull", "down"))[number % 2]
            rows.writerow([f"a {word} one of {number % 7}", label])
    return path


def fitted(table: Path, out: Path, *more: str) -> str:
    how = ["--text", "review", "--label", "stars", "--keep", "0.4", "--out", str(out)]
    result = invoke(["fit", str(table), *how, *more, *SMALL])
    assert result.exit_code == 0, result.output
    return result.stdout


def prepared_for(run: Path) -> Manifest:
    """What the data are that a run read."""
    return open_prepared(json.loads((run / "config.json").read_text())["config"]["data"]).manifest


def test_a_time_that_is_none_is_refused_before_anything_is_prepared(
    table: Path, tmp_path: Path
) -> None:
    how = ["--text", "review", "--label", "stars", "--time", "soon"]
    result = invoke(["fit", str(table), *how, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "time (--time): 'soon' is not a duration. Write it as 90s" in result.stderr
    assert not list(tmp_path.iterdir())


def test_several_seeds_with_their_spread(table: Path, tmp_path: Path) -> None:
    said = fitted(table, tmp_path / "run", "--seeds", "2")
    assert "1      2 of 2" in said
    assert re.search(r"All of it took \d+\.\d minutes", said)
    assert said.count("Data: ") == 2  # prepared once; the heading of the report
    assert re.search(r"accuracy +\d+\.\d% \(\d", said)
    seeds = [
        json.loads((tmp_path / name / "config.json").read_text())["config"]["seed"]
        for name in ("run", "run-seed1")
    ]
    assert seeds == [0, 1]
    page = tmp_path / "run" / "report.html"
    assert str(page) in said.replace("\n", "")
    assert "run-seed1" in page.read_text(encoding="utf-8")


def test_each_fold_is_tested_once_in_one_report(table: Path, tmp_path: Path) -> None:
    said = fitted(table, tmp_path / "run", "--folds", "3")
    assert "1      3 of 3" in said
    assert re.search(r"accuracy +\d+\.\d% \(\d", said)
    runs = [tmp_path / name for name in ("run", "run-fold2", "run-fold3")]
    seen: list[tuple[str, ...]] = []
    for number, run in enumerate(runs):
        config = json.loads((run / "config.json").read_text())["config"]
        test = open_prepared(config["data"]).split("test")
        assert config["seed"] == number
        seen += [test.words(row)[0] for row in range(len(test))]
    rows = [row[0].split() for row in csv.reader(table.read_text().splitlines()[1:])]
    assert sorted(seen) == sorted(map(tuple, rows))
    assert "Means over 3 runs." in (tmp_path / "run" / "report.html").read_text(encoding="utf-8")


def test_whether_more_rows_would_help(table: Path, tmp_path: Path) -> None:
    said = " ".join(fitted(table, tmp_path / "run", "--learning-curve").split())
    assert "Test has 9 rows of 1 texts: 95% intervals are" in said
    rows = [42, 59, 102]  # copies of a text stay together
    assert f"accuracy from {', '.join(map(str, rows))} rows: kept words" in said
    assert "; a linear classifier" in said
    datas = [prepared_for(tmp_path / name) for name in ("run-quarter", "run-half", "run")]
    assert [data.splits["train"].rows for data in datas] == rows
    assert {data.splits["test"].rows for data in datas} == {9}
    page = (tmp_path / "run" / "report.html").read_text(encoding="utf-8")
    assert "Would more rows help?" in page
    how = ["--text", "review", "--label", "stars", "--learning-curve", "--folds", "3"]
    assert "give one of them" in invoke(["fit", str(table), *how]).stderr


def test_a_bad_row_is_that_of_the_table_not_of_a_part(tmp_path: Path) -> None:
    table = tmp_path / "reviews.csv"
    table.write_text("review,stars\n" + "fine,up\ndull,down\n" * 9 + '"  ",up\n')
    result = invoke(["fit", str(table), "--text", "review", "--label", "stars", "--folds", "3"])
    assert "reviews.csv, row 20: column 'review' is empty" in " ".join(result.stderr.split())


def test_preparing_that_takes_all_the_time_is_said(table: Path, tmp_path: Path) -> None:
    how = ["fit", str(table), "--text", "review", "--label", "stars", "--time", "0.001s"]
    result = invoke([*how, "--out", str(tmp_path / "run")])
    assert result.exit_code == 2
    assert "preparing the data took all of the time; they are kept" in result.stderr
    assert not (tmp_path / "run").exists()
    assert "already prepared" in invoke([*how, "--out", str(tmp_path / "run")]).stdout


def test_data_that_another_call_prepared_meanwhile_serve_both(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "rss_rl.api.adapting.prepare",
        lambda *given, **how: [rss_rl.prepare(*given, **how) for _ in range(2)],
    )
    assert "already prepared" in fitted(table, tmp_path / "run")


def test_another_configuration_is_taken_as_it_is(table: Path, tmp_path: Path) -> None:
    """But for the share asked for: nothing of it is fitted to the data."""
    said = fitted(table, tmp_path / "run", "--config", "own_context")
    assert "config=own_context" in said
    config = json.loads((tmp_path / "run" / "config.json").read_text())["config"]
    assert config["policy"]["options"]["context"] == "conv"
    assert config["learner"]["policy"]["decay_updates"] == 2100
    assert config["reward"]["target_share"] == 0.4


def test_vectors_of_a_package_serve_where_none_are_given(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It says which vectors it took, and how to have others."""
    monkeypatch.setattr("rss_rl.api.adapting.PACKAGES", ("carries_vectors_for_fit",))
    said = fitted(table, tmp_path / "without", "--no-label-weights")
    assert "label_weights=false" in said
    assert "learnt from these texts alone" in said
    assert "pip install carries_vectors_for_fit" in " ".join(said.split())
    static_vectors.save(tmp_path / "packages" / "carries_vectors_for_fit")
    (tmp_path / "packages" / "carries_vectors_for_fit" / "__init__.py").touch()
    monkeypatch.syspath_prepend(str(tmp_path / "packages"))
    assert "static:carries_vectors_for_fit" in fitted(table, tmp_path / "with")
    assert prepared_for(tmp_path / "with").vectors.widths == (2,)


@pytest.fixture(scope="module")
def chosen(table: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """A run of what it chooses, and what it said."""
    out = tmp_path_factory.mktemp("chosen") / "run"
    return out, fitted(table, out, "--class-weight", "balanced")


def test_a_table_is_prepared_once(table: Path, chosen: tuple[Path, str], tmp_path: Path) -> None:
    """Again where its content, a column or a setting differs; not for another run's directory."""
    first, said = chosen
    second = first.with_name("second")
    assert "already prepared" not in said
    assert "already prepared" in fitted(table, second)
    assert prepared_for(first) == prepared_for(second)
    shorter = tmp_path / table.name
    shorter.write_text("".join(table.read_text().splitlines(keepends=True)[:-20]))
    assert "already prepared" not in fitted(shorter, tmp_path / "third")
    said = " ".join(fitted(table, tmp_path / "fourth", "--dev", str(shorter)).split())
    assert "already prepared" not in said
    copies = json.loads((tmp_path / "fourth" / "report.json").read_text())["in_train"]
    assert 80 < (rows := copies["dev"]["rows"]) < 100
    assert copies["test"] == {"rows": 0, "share": 0}
    page = html.unescape((tmp_path / "fourth" / "report.html").read_text(encoding="utf-8"))
    for shown in (said, page):
        assert f"{rows} of dev's rows ({rows}.0%) have a text that is in train, too" in shown
    assert prepared_for(tmp_path / "fourth").splits["dev"].rows == 100
    with RunDirectory.create(tmp_path / "fourth", {}, overwrite=True):
        assert {*os.listdir(tmp_path / "fourth")} == {"config.json", "config.yaml", "run.lock"}


def test_what_it_chooses_is_said_and_can_be_overridden(chosen: tuple[Path, str]) -> None:
    said = " ".join(chosen[1].split())
    for choice in ("task=classes", "reward.target_share=0.4 as asked", "evaluation.every=50 "):
        assert choice in said
    assert "config=own short texts, of 5 words" in said
    assert "batch_size=" not in said  # it was given
    config = json.loads((chosen[0] / "config.json").read_text())["config"]
    assert config["batch_size"] == 8  # the last word is the user's
    assert config["learner"]["policy"]["decay_updates"] == 16
    assert config["learner"]["class_weight"] == "balanced"


def test_the_policy_of_pairs_still_moves_when_the_classifier_has_settled(tmp_path: Path) -> None:
    """In proportion to the updates of the configuration that it begins with."""
    pairs = tmp_path / "pairs.csv"
    words = ("fine", "dull")
    lines = [f"{n} {word} one,one of {word},{word}" for n in range(60) for word in words]
    pairs.write_text("\n".join(["first,second,label", *lines]))
    columns = ["--text", "first", "--text-b", "second", "--label", "label"]
    said = ["--keep", "0.4", "--out", str(tmp_path / "run"), *columns]
    small = [setting for setting in SMALL if not setting.startswith(("phases.2", "phases.3"))]
    result = invoke(["fit", str(pairs), *said, *small])
    assert result.exit_code == 0, result.output
    learner = json.loads((tmp_path / "run" / "config.json").read_text())["config"]["learner"]
    assert [learner[name]["decay_updates"] for name in ("supervised", "policy")] == [8, 16]


@pytest.mark.parametrize(
    ("labels", "task"),
    [
        (("1", "2", "5"), "classes"),
        (("1.0", "2.0"), "classes"),
        (("0.5", "1"), "score"),
        (tuple(map(str, range(30))), "score"),
        (tuple(map(str, range(25))) * 20, "classes"),
        (("1" * 400, "2"), "score"),
        (("1", "two"), "classes"),
        (("", "0.25", "3"), "score"),  # a row without a label says nothing
        (("0", "1", "nan"), "classes"),
    ],
)
def test_the_task_follows_from_the_labels(
    labels: tuple[str, ...], task: str, tmp_path: Path
) -> None:
    path = tmp_path / "rows.csv"
    path.write_text("text,label\n" + "".join(f"a,{label}\n" for label in labels))
    assert guess_task([path], "label") == task


@pytest.mark.parametrize("share", ["1.5", "0", "-0.2", "nan"])
def test_a_share_that_cannot_be_kept_is_refused_by_its_option(
    table: Path, tmp_path: Path, share: str
) -> None:
    how = ["--text", "review", "--keep", share, "--out", str(tmp_path / "run")]
    result = invoke(["fit", str(table), "--label", "stars", *how])
    assert result.exit_code != 0
    assert "--keep" in result.output
    assert "target_share" not in result.output
    assert list(tmp_path.iterdir()) == []  # nothing was prepared


def test_schedules_follow_from_rows_and_length() -> None:
    def steps(rows: int, words: int, texts: int = 1) -> tuple[int, list[int]]:
        data = manifest(rows, words, texts)
        base = choose_encoder(data, None, None)[0].value
        found = {default.key: default.value for default in schedule(data, base)}
        counts = [value for key, value in found.items() if key.endswith(".steps")]
        shipped = load_config(find_config(base), [])
        assert len(counts) == len(shipped.phases)
        return found["batch_size"], counts

    assert steps(3_200, 20) == (32, [400, 300, 200, 600])
    assert steps(1_600, 800) == (16, [200, 300, 150, 250, 125])
    assert steps(1_600, 20, texts=2) == (32, [250, 450])
    assert steps(1_600, 800, texts=2) == steps(1_600, 800)
    assert sum(steps(200, 20)[1]) == 500  # many epochs of little
    assert steps(30_000, 20)[0] == 64
    for rows in (100_000, 640_000):  # each phase reads every row
        batch, few = steps(rows, 20)
        assert sum(few) <= 6000
        assert rows <= batch * min(few) < 2 * rows
        assert few[3] == 2 * few[1]


def test_dev_and_test_of_a_large_table_are_no_larger(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are read again and again."""
    monkeypatch.setattr("rss_rl.api.adapting._LARGE", 60)
    fitted(table, tmp_path / "run")
    rows = {name: info.rows for name, info in prepared_for(tmp_path / "run").splits.items()}
    assert max(rows["dev"], rows["test"]) < 10


def test_there_are_as_many_updates_as_there_is_time_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of a large table they read fewer rows first; what the user set stays."""
    monkeypatch.setattr(
        "rss_rl.api.adapting.measure_costs",
        lambda _, __, sizes: [Costs([size * cost for cost in (1, 1, 2, 4)]) for size in sizes],
    )
    own = load_config(find_config("own"), [f"phases.{n}.steps=100" for n in range(4)])
    timed = [Default(f"phases.{n}.steps", 100, "") for n in range(3)]
    total = 32 * 100 * (1 + 1 + 2 + 4 + 3)  # the comparison goes on from the first phase
    config, costs = within(own, None, timed, 2.0 * total)  # type: ignore[arg-type]
    assert config == own
    assert costs == Costs([32, 32, 64, 128])
    config, _ = within(own, None, timed, total / 2)  # type: ignore[arg-type]
    assert [phase.steps for phase in config.phases] == [50, 50, 50, 100]
    large = own.model_copy(update={"batch_size": 256})
    batch = Default("batch_size", 256, "")
    config, costs = within(large, None, [batch, *timed], total * 3.0)  # type: ignore[arg-type]
    assert config.batch_size == 64
    assert [phase.steps for phase in config.phases] == [100] * 4
    config, _ = within(large, None, [batch, *timed], total / 2)  # type: ignore[arg-type]
    assert (config.batch_size, config.phases[0].steps) == (32, 50)


def test_hardware_and_time_decide_what_a_transformer_is_for() -> None:
    """The classifier on a GPU or where there is time for it; else it reads each text once."""

    def chosen(words: int, *how: Any) -> dict[str, Any]:
        base, more = choose_encoder(manifest(1000, words), *how)
        return {default.key: default.value for default in (base, *more)}

    classifier = "transformer/sentences_in_context"
    assert choose_encoder(manifest(1000, 20, texts=2), None, None)[0].value == "own_pairs"
    for words, config in ((20, "own"), (800, "own_long")):
        assert chosen(words, None, None) == {"config": config}
        assert chosen(words, None, "a GPU") == {"config": config, "learner.device": "cpu"}
        context = {"config": config, "policy.reads": "contextual", "policy.pretrained": "bert"}
        assert chosen(words, "bert", None, Expected(3600.0, 2)) == context
        assert chosen(words, "bert", None, Expected(600.0, 2), 300.0) == context
        for how in ((Expected(600.0, 2),), (Expected(3600.0, 2), 7200.0)):
            found = chosen(words, "bert", None, *how)
            own = {"learner.threads": 2, "batch_lengths": "similar"}
            assert found == {"config": classifier, **own}
        assert chosen(words, "bert", "a GPU") == {"config": classifier, "learner.device": "cuda"}


def test_of_long_texts_few_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of whole films in a transformer would take minutes and all of the memory."""
    measured: list[int] = []
    own = Split.batch
    monkeypatch.setattr(
        Split, "batch", lambda split, rows: [measured.append(len(rows)), own(split, rows)][1]
    )
    folder = tiny_transformers.save(tmp_path / "bert")
    for words in (5, 500):
        filler = "fine " * (words - 1)
        texts = [{"text": f"{n} {filler}", "label": ("up", "down")[n % 2]} for n in range(60)]
        out = tmp_path / str(words)
        rss_rl.prepare(texts, out=out, text="text", label="label", dim=2)
        expect(out, str(folder), 0.4)
    assert measured == [32, 4]


def test_phrases_of_long_texts(table: Path, tmp_path: Path) -> None:
    long = tmp_path / "long.csv"
    rows = table.read_text().splitlines()
    filler = " ".join(["of"] * 110)
    text = [rows[0], *(row.replace("one of", f"one {filler}") for row in rows[1:])]
    long.write_text("\n".join(text))
    small = [s for s in SMALL if not s.startswith("model.attention")]
    how = ["--text", "review", "--label", "stars", *small]
    asked = ["--phrases"]
    for more, config, policy in (([], "own_long", "rss"), (asked, "own_phrases", "smooth")):
        out = tmp_path / config
        result = invoke(["fit", str(long), *how, *more, "--out", str(out)])
        assert result.exit_code == 0, result.output
        assert f"config={config}" in result.stdout
        assert "evaluation.every=50" in result.stdout  # fitted to the data
        assert json.loads((out / "config.json").read_text())["config"]["policy"]["name"] == policy
    both = invoke(["fit", str(long), *how, "--phrases", "--config", "own"])
    assert "--phrases and --config both name a configuration" in both.stderr


def test_a_transformer_is_context_where_there_is_no_time(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_transformers.save(tmp_path / "bert")
    monkeypatch.setattr("rss_rl.api.adapting._PATIENCE_S", 0.0)
    said = fitted(table, tmp_path / "context", "--pretrained", str(folder))
    assert "policy.reads=contextual" in said
    vectors = prepared_for(tmp_path / "context").vectors
    assert [file.name for file in vectors.files] == ["encoder:bert"]
    assert vectors.any.words == 1.0  # no word is without one
    glove = tmp_path / "glove.txt"
    glove.write_text("fine 1 2 3\n")
    given = ["--pretrained", str(folder), "--vectors", str(glove)]
    fitted(table, tmp_path / "given", *given)
    assert prepared_for(tmp_path / "given").vectors.widths == (3,)
    refused = invoke(
        ["fit", str(table), "--text", "review", "--label", "stars", *given, "--config", "own"]
    )
    assert refused.exit_code == 2
    assert "--pretrained" in refused.output


def test_a_transformer_learns_from_all_words_once_and_then_from_kept_ones(
    table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tiny_transformers.save(tmp_path / "bert")
    monkeypatch.setattr("rss_rl.api.finetuning._FEWEST", 4)  # updates on all words
    monkeypatch.setattr("rss_rl.api.finetuning._EPOCHS", 0.0)
    how = ["fit", str(table), "--text", "review", "--label", "stars", "--pretrained", str(folder)]
    small = [f"phases.{number}.steps=4" for number in range(3)]
    small += ["policy.options.hidden=3", "learner.threads=1"]
    run = tmp_path / "run"
    first = invoke([*how, *small, "--out", str(run)])
    assert first.exit_code == 0, first.output
    assert "minutes on this machine" in " ".join(first.output.split())
    (words,) = tmp_path.glob("*-encoder-*-seed0")
    config = json.loads((run / "config.json").read_text())["config"]
    tuned = str(words.with_name(f"{words.name}-export") / "encoder")
    assert config["policy"]["pretrained"] == tuned
    assert config["model"]["encoder"]["options"]["pretrained"] == tuned
    test, alone = (
        json.loads((path / "report.json").read_text())["splits"]["test"] for path in (run, words)
    )
    assert test["all"] == alone["all"]  # all words are those of the transformer that read them
    # The largest weights are a rival only where the policy does not keep all words.
    assert set(test) - {"weights"} == {"all", "thresholded", "sampled", "random", "linear"}
    assert "all" in rss_rl.Run(run).evaluate("dev")
    again = invoke([*how, *small, "--keep", "0.2", "--out", str(tmp_path / "again")])
    assert again.exit_code == 0, again.output
    assert "Fine-tuned on all words already" in again.output
    # What --time cut short is no encoder for those who have more time.
    report = json.loads((words / "report.json").read_text())
    assert report["steps"] == 4
    short = {**report, "steps": 1, "wall_seconds": 3600.0}
    (words / "report.json").write_text(json.dumps(short))
    hurried = invoke([*how, *small, "--time", "5m", "--overwrite", "--out", str(run)])
    assert "in the 25% of its updates" in " ".join(hurried.output.split()), hurried.output
    patient = invoke([*how, *small, "--overwrite", "--out", str(run)])
    assert "once more, all of them" in " ".join(patient.output.split()), patient.output
    assert json.loads((words / "report.json").read_text())["steps"] == 4
    # What was stopped is continued by the same command.
    (words / "report.json").unlink()
    resumed = invoke([*how, *small, "--overwrite", "--out", str(run)])
    assert resumed.exit_code == 0, resumed.output
    assert (words / "report.json").is_file()


def test_long_texts_keep_a_fifth_unless_asked() -> None:
    for words, keep, share in ((20, None, 0.4), (800, None, 0.2), (800, 0.5, 0.5)):
        assert _share(manifest(1000, words), keep).value == share


def manifest(rows: int, words: int, texts: int = 1) -> Any:
    """The part of a manifest that choices look at."""
    train = SimpleNamespace(rows=rows, tokens=(rows * words,) * texts)
    return SimpleNamespace(splits={"train": train, "dev": SimpleNamespace(rows=rows // 8)})
