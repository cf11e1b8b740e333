"""The cursor counts batches, and a restored one goes on where the first stood."""

from __future__ import annotations

import json

from rss_rl.data.order import BatchOrder
from rss_rl.data.store import Prepared
from rss_rl.runtime.cursor import BatchCursor


def test_a_restored_cursor_goes_on(tiny: Prepared) -> None:
    cursor = BatchCursor(BatchOrder(tiny.split("train"), 8, seed=1))
    expected = [cursor.rows(ahead).tolist() for ahead in range(20)]
    for number in range(7):
        assert cursor.rows().tolist() == expected[number]
        cursor.advance()
    state = json.loads(json.dumps(cursor.state_dict()))
    assert state == {"batch": 7}
    other = BatchCursor(BatchOrder(tiny.split("train"), 8, seed=1))
    other.load_state_dict(state)
    assert [other.rows(ahead).tolist() for ahead in range(13)] == expected[7:]
