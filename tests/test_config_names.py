"""What is written as a setting or a configuration is read back as it was."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.config import load_config, parse_value, setting, with_overrides, yaml_text
from rss_rl.errors import ConfigError
from rss_rl.packaged import find_config

TEXTS = st.one_of(
    st.text(st.characters(exclude_categories=["Cs"])),
    st.sampled_from(
        ["1e5", "1e-3", ".5e2", "0123", "2020-01-01", "null", "yes", "~", "*x", "a: b"]
    ),
    st.sampled_from(
        ["😀/films", "'films", '"films"', "# films", "films #1", " films ", "x\ny", "="]
    ),
)
VALUES = st.recursive(
    TEXTS | st.integers(-(2**62), 2**62) | st.floats(allow_nan=False, allow_infinity=False)
    | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)  # fmt: skip


@given(TEXTS)
def test_a_name_is_read_back_as_it_was_written(name: str) -> None:
    assert with_overrides({}, [setting("data", name)]) == {"data": name}


@given(VALUES)
def test_a_value_is_read_back_as_it_was_written(value: Any) -> None:
    assert (
        with_overrides({}, [setting("phases.one.steps", value)])
        == {"phases": {"one": {"steps": value}}}
        or value is None
    )
    assert parse_value(yaml_text({"a": value}), where="test") == {"a": value}


@pytest.mark.parametrize("name", ["1e5", "123", "2020-01-01", "[x]", "a: b", "*x", "yes", "😀"])
def test_names_of_files_need_no_quotes(name: str) -> None:
    assert load_config(find_config("demo"), [f"data={name}"]).data == name


def test_what_is_no_value_is_refused() -> None:
    assert setting("data", Path("runs/x")) == "data=runs/x"
    with pytest.raises(ConfigError, match="data: a value cannot be of type object"):
        setting("data", object())
