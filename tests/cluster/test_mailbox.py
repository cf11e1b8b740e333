"""Snapshots that arrive while a sampler works: it loads all that it lacks, in order, once."""

from __future__ import annotations

import threading
from typing import Any

import pytest
from ray.exceptions import GetTimeoutError

from rss_rl.cluster import sampler_actor
from rss_rl.cluster.sampler_actor import Mailbox
from rss_rl.rollouts.snapshot import CLASSIFIER, POLICY, WORDS, StoredDelta, StoredSnapshot


@pytest.fixture(autouse=True)
def store(monkeypatch: pytest.MonkeyPatch) -> None:
    """References are bundles themselves."""
    monkeypatch.setattr(sampler_actor.ray, "get", lambda references, timeout: references)


def whole(part: str, tag: int, place: int = 0) -> StoredDelta:
    bundle = tuple(f"{part} {tag}" for _ in range(place + 1))
    return StoredDelta(part, True, 0, bundle, place)


def rows(tag: int) -> StoredDelta:
    return whole(WORDS, tag)._replace(full=False)


def put(box: Mailbox, number: int, *deltas: StoredDelta) -> None:
    box.put(number, StoredSnapshot(10 + number, deltas))


def test_a_sampler_takes_what_it_lacks_in_order() -> None:
    box = Mailbox(0.1)
    put(box, 1, whole(CLASSIFIER, 1), whole(WORDS, 1), whole(POLICY, 1))
    put(box, 2, rows(2), whole(POLICY, 2, place=1))
    put(box, 3, rows(3))
    taken: Any = box.take(1)
    assert taken.deltas == ("classifier 1", "words 1", "words 2", "policy 2", "words 3")
    assert taken.version == 13
    assert box.take(3).deltas == ()
    assert box.take(3).version == 13
    put(box, 4, rows(4))
    put(box, 5, whole(WORDS, 5))
    assert box.take(4).deltas == ("words 5",)


def test_a_job_waits_for_the_snapshot_that_it_needs() -> None:
    box = Mailbox(0.1)
    put(box, 1, whole(POLICY, 1))
    with pytest.raises(GetTimeoutError, match="publication 2 did not arrive"):
        box.take(2)
    box = Mailbox(20.0)
    arrives = threading.Timer(0.2, put, [box, 2, whole(POLICY, 2)])
    arrives.start()
    assert box.take(2).deltas == ("policy 2",)
    arrives.join()
