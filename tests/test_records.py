"""The shared records and errors."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from rss_rl import errors
from rss_rl.errors import RssError
from rss_rl.types import Batch


@pytest.mark.parametrize(
    "kind", [kind for name, kind in vars(errors).items() if name.endswith("Error")]
)
def test_errors_say_where_what_and_remedy_and_cross_processes(kind: type[RssError]) -> None:
    error = kind("it broke", where="file.csv:3", remedy="Mend it")
    assert str(error) == "file.csv:3: it broke. Mend it"
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is kind
    assert (again.what, again.where, again.remedy) == ("it broke", "file.csv:3", "Mend it")
    assert str(kind("it broke")) == "it broke"
    assert issubclass(kind, RssError)


def batch(rationale: bool) -> Batch:
    tokens = (np.array([[1, 2], [3, 0]]), np.array([[4], [5]]))
    valid = tuple(t > 0 for t in tokens)
    return Batch(np.array([7, 9]), tokens, valid, np.array([0, 1]), valid if rationale else None)


@pytest.mark.parametrize("rationale", [True, False])
def test_a_repeated_batch_is_sample_major(rationale: bool) -> None:
    one = batch(rationale)
    assert (len(one), one.sentences) == (2, 2)
    thrice = one.repeat(3)
    assert len(thrice) == 6
    for k in range(3):
        for b in range(2):
            place = k * 2 + b
            assert thrice.rows[place] == one.rows[b]
            assert thrice.labels[place] == one.labels[b]
            for slot in range(2):
                assert np.array_equal(thrice.tokens[slot][place], one.tokens[slot][b])
                assert np.array_equal(thrice.valid[slot][place], one.valid[slot][b])
                if rationale:
                    assert thrice.rationale is not None
                    assert np.array_equal(thrice.rationale[slot][place], one.valid[slot][b])
    assert (thrice.rationale is None) is not rationale
