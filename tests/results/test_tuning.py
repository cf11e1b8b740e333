"""Search spaces, what is drawn from them, records of trials, and what is said to have mattered."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from rss_rl.config import load_config
from rss_rl.data.store import Prepared
from rss_rl.errors import CheckpointError, ConfigError
from rss_rl.packaged import find_config, find_space, packaged_configs, packaged_spaces
from rss_rl.results.tuning.influence import influences
from rss_rl.results.tuning.report import _differences, ranked
from rss_rl.results.tuning.space import Base, Space, draw_settings, load_base, load_space
from rss_rl.results.tuning.study import open_study
from rss_rl.results.tuning.trial import (
    Evaluation,
    TrialRecord,
    points,
    read_record,
    write_record,
)

OWN = "own"


@pytest.fixture(scope="module")
def base() -> Base:
    return load_base(find_config(OWN), ["reward.target_share=0.4"])


def test_trials_find_what_the_base_names(
    tiny: Prepared, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ray Tune gives each trial another working directory."""
    monkeypatch.chdir(Path(tiny.location).parent)
    data = f"data={Path(tiny.location).name}"
    base = load_base(
        find_config(OWN), [data, "policy.from_run=there", "evaluation.all_tokens=false"]
    )
    space = space_of(tmp_path, base, model__dropout={"choice": [0.1, 0.2]})
    study = open_study(tmp_path, space, base, begin=False)
    named = study.config.data, study.config.policy.from_run
    assert named == (tiny.location, str(Path("there").absolute()))


def space_of(tmp_path: Path, base: Base, **dimensions: Any) -> Space:
    file = tmp_path / "space.yaml"
    file.write_text(json.dumps({key.replace("__", "."): v for key, v in dimensions.items()}))
    return load_space(file, base)


def test_shipped_spaces_fit_and_are_no_configurations(base: Base) -> None:
    assert packaged_spaces() == ["classifier", "policy"]
    assert not [name for name in packaged_configs() if name.startswith("tune")]
    for name in packaged_spaces():
        drawn = list(islice(draw_settings(load_space(find_space(name), base), base), 30))
        assert len(drawn) == 30
    with pytest.raises(ConfigError, match="did you mean 'policy'"):
        find_space("polcy")


@pytest.mark.parametrize(
    ("key", "values", "said"),
    [
        ("learner.polcy.l2", {"log": [1e-5, 1e-3]}, "did you mean 'policy'"),
        ("model.dropout", {"uniform": [0.1, 1.5]}, "model.dropout"),
        ("sampler.selections", {"integer": [0, 8]}, "greater than or equal to 1"),
        ("model.hidden", {"choice": [50, "many"]}, "'many' cannot be used"),
        ("model.hidden", {"choice": [50]}, "at least two"),
        ("model.hidden", {"choice": [50, 50]}, "each once"),
        ("model.dropout", {"uniform": [0.5, 0.1]}, "low below high"),
        ("learner.policy.l2", {"log": [0.0, 0.1]}, "above 0"),
        ("model.dropout", {"uniform": [0, 0.1], "choice": [0, 1]}, "give one of"),
        ("model.dropout", {"normal": [0, 0.1]}, "unknown key 'normal'"),
        ("model.dropout", [0, 0.1], "{uniform: [LOW, HIGH]}"),
        ("seed", {"choice": [0, 1]}, "--seeds"),
        ("evaluation.every", {"choice": [5, 10]}, "evaluation is not tuned"),
        ("reward.target_share", {"uniform": [0.1, 0.5]}, "KEY=VALUE"),
        ("phases.co-trian.mixed_share", {"uniform": [0, 0.5]}, "co-train"),
    ],
)
def test_a_space_is_checked_before_any_trial(
    tmp_path: Path, base: Base, key: str, values: Any, said: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        space_of(tmp_path, base, **{key: values})
    assert said in str(caught.value)
    assert "space.yaml" in str(caught.value)
    assert key in str(caught.value)


ranges = st.tuples(st.floats(0.001, 0.4), st.floats(0.45, 0.9)).map(list)
whole = st.tuples(st.integers(2, 5), st.integers(6, 40)).map(list)
some = st.lists(st.integers(2, 40), min_size=2, max_size=4, unique=True)
dimension = {
    "model.dropout": st.fixed_dictionaries({"uniform": ranges}),
    "learner.entropy_cost": st.fixed_dictionaries({"log": ranges}),
    "sampler.selections": st.one_of(
        st.fixed_dictionaries({"integer": whole}), st.fixed_dictionaries({"choice": some})
    ),
    "learner.estimator": st.fixed_dictionaries(
        {"choice": st.permutations(["reinforce", "ppo-clip", None]).map(lambda p: p[:2])}
    ),
    "phases.co-train.mixed_share": st.fixed_dictionaries({"uniform": ranges}),
}


@given(tree=st.fixed_dictionaries({}, optional=dimension), seed=st.integers(0, 9))
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_what_is_drawn_loads_and_lies_in_the_space(
    tmp_path: Path, base: Base, tree: dict[str, Any], seed: int
) -> None:
    if not tree:
        return
    try:
        space = space_of(tmp_path, base, **tree)
    except ConfigError as error:  # odd numbers of selections for pairs alone
        assert "must be even" in str(error)
        return
    first, *drawn = islice(draw_settings(space, base, seed), 6)
    assert first == {}
    assert drawn == list(islice(draw_settings(space, base, seed), 6))[1:]
    for own in drawn:
        assert list(own) == list(tree)
        # As the command line would be given them.
        overrides = ["reward.target_share=0.4", *(f"{k}={json.dumps(v)}" for k, v in own.items())]
        load_config(find_config(OWN), overrides)
        for key, value in own.items():
            ((kind, values),) = tree[key].items()
            assert value in values if kind == "choice" else values[0] <= value <= values[1]


def test_other_seeds_draw_otherwise(tmp_path: Path, base: Base) -> None:
    space = space_of(tmp_path, base, model__dropout={"uniform": [0, 0.5]})
    one, other = (list(islice(draw_settings(space, base, seed), 4)) for seed in (0, 1))
    assert one[1:] != other[1:]


def record_of(
    number: int, *curve: tuple[int, float], state: Any = "finished", **given: Any
) -> TrialRecord:
    found = [Evaluation("co-train", 10 + u, v, 0.4, v, v) for u, v in curve]
    return TrialRecord(number, given, state, evaluations=[found])


def test_records_survive_the_disk_and_damage_is_named(tmp_path: Path) -> None:
    record = record_of(3, (0, 0.5), (5, 0.75), **{"model.dropout": 0.25})
    write_record(tmp_path, record)
    assert read_record(tmp_path) == record
    assert read_record(tmp_path / "none") is None
    (tmp_path / "trial.json").write_text('{"number": 1}')
    with pytest.raises(CheckpointError, match="no record of a trial"):
        read_record(tmp_path)


def test_points_are_means_over_seeds_of_the_best_in_the_phase() -> None:
    one = [
        Evaluation("frozen", 10, 0.9, 0.8, -300.0, 0.5),
        Evaluation("frozen", 15, 0.6, 0.4, 0.6, 0.6),
        Evaluation("co-train", 15, 0.5, 0.4, 0.5, 0.5),
        Evaluation("co-train", 20, 0.4, 0.4, 0.4, 0.4),
        Evaluation("co-train", 25, 0.7, 0.4, 0.7, 0.7),
    ]
    other = [own._replace(update=own.update + 3, value=own.value and 1.0) for own in one[:4]]
    found = points(TrialRecord(0, {}, evaluations=[one, other]))
    assert [(p.phase, p.progress) for p in found] == [
        ("frozen", 0),
        ("frozen", 5),
        ("co-train", 5),
        ("co-train", 10),
    ]
    assert found[0].update == 13
    assert found[1].merit == 0.6  # that keeps too much is worth less than any that does not
    assert (found[2].merit, found[2].promise) == (0.5, 0.5)  # a phase begins anew
    assert (found[3].value, found[3].best) == (pytest.approx(0.7), pytest.approx(0.75))
    assert points(TrialRecord(0, {})) == []


def test_ranks_and_what_mattered(tmp_path: Path, base: Base) -> None:
    """Dropout decides, the estimator does nothing; stopped trials count where they still ran."""
    space = space_of(
        tmp_path,
        base,
        model__dropout={"uniform": [0, 0.8]},
        learner__estimator={"choice": ["reinforce", "ppo-clip"]},
    )
    records = []
    for number in range(1, 9):
        dropout = number / 10
        own = {"model.dropout": dropout, "learner.estimator": ["reinforce", "ppo-clip"][number % 2]}
        good = number <= 4
        curve = [(0, 0.1), (10, 1 - dropout)] + ([(20, 1 - dropout)] if good else [])
        records.append(record_of(number, *curve, state="finished" if good else "stopped", **own))
    dropout, estimator = influences(space, base, records, 10, over=False)
    assert dropout.trials == 8
    assert dropout.correlation == pytest.approx(-1)
    assert dropout.p is not None
    assert dropout.p < 0.01
    assert estimator.ranks == {"ppo-clip": (4.0, 4), "reinforce": (5.0, 4)}
    assert estimator.p is not None
    assert estimator.p > 0.3
    assert influences(space, base, records, 20, over=True)[0].trials == 4
    few = influences(space, base, records[:2], 10, over=False)
    assert [own.correlation for own in few] == [None, None]
    shuffled = [records[n] for n in np.random.default_rng(0).permutation(8)]
    assert [r.number for r in ranked(shuffled)] == list(range(1, 9))
    baseline = influences(
        space, base, [*records, record_of(0, (0, 0.1), (10, 0.1))], 10, over=False
    )[1]
    assert baseline.ranks["reinforce"][1] == 5  # which is what the configuration means by null


@given(
    settings_=st.fixed_dictionaries(
        {},
        optional={
            "model.dropout": st.floats(0, 0.9),
            "phases.co-train.steps": st.integers(1, 600),
            "learner.estimator": st.sampled_from([None, "reinforce", "ppo-clip"]),
            "policy.name": st.sampled_from(["rss", "smooth"]),
            "policy.options.hidden": st.integers(1, 50),
            "learner.weight_average": st.sampled_from([None, 0.5]),
        },
    )
)
@settings(
    max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
def test_a_file_of_the_differences_means_the_same(
    tmp_path: Path, base: Base, settings_: dict[str, Any]
) -> None:
    try:
        base.configure(settings_)
    except ConfigError:
        return
    (tmp_path / "base.yaml").write_text(yaml.safe_dump(dict(base.tree)))
    changed = _differences(base.tree, base.with_settings(settings_))
    (tmp_path / "best.yaml").write_text(yaml.safe_dump({"extends": "base.yaml"} | changed))
    wanted = load_config(
        find_config(OWN),
        ["reward.target_share=0.4", *(f"{k}={json.dumps(v)}" for k, v in settings_.items())],
    )
    assert load_config(tmp_path / "best.yaml") == wanted
