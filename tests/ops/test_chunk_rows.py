"""Which dependents a head reaches, and the rows of heads that end in the same chunk."""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from rss_rl.ops.chunk_rows import Order, reaches, rows_of
from rss_rl.ops.masking import kept_indices

bits = st.integers(1, 9).flatmap(
    lambda n: st.lists(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=n, max_size=n),
                       min_size=1, max_size=3)
)  # fmt: skip


@given(bits=bits, order=st.sampled_from(["before", "after", "others"]))
def test_reaches_are_the_pairs_of_the_mask(bits: list, order: Order) -> None:
    roles = torch.tensor(bits)  # [M, N, 2]
    heads, dependents = kept_indices(roles[..., 0]), kept_indices(roles[..., 1])
    cells = range(dependents.kept.shape[1])
    found = []
    for reversed_, reach in reaches(heads, dependents, order):
        for m, j in heads.kept.nonzero().tolist():
            count = int(reach[m, j])
            seen = cells[len(cells) - count :] if reversed_ else cells[:count]
            found += [
                (m, int(heads.index[m, j]), int(dependents.index[m, i]))
                for i in seen
                if dependents.kept[m, i]
            ]
        assert (reach[~heads.kept] == 0).all()
    wanted = {
        (m, j, i)
        for m, row in enumerate(bits)
        for j, (head, _) in enumerate(row)
        for i, (_, dependent) in enumerate(row)
        if head and dependent and i != j and order in (("before" if i < j else "after"), "others")
    }
    assert sorted(found) == sorted(wanted)


@given(
    reach=st.integers(1, 9).flatmap(
        lambda j: st.lists(
            st.lists(st.integers(0, 12), min_size=j, max_size=j), min_size=1, max_size=3
        )
    ),
    chunk=st.integers(1, 5),
)
def test_rows_hold_each_head_once_in_the_chunk_where_its_reach_ends(
    reach: list[list[int]], chunk: int
) -> None:
    chunks = -(-12 // chunk)
    rows = rows_of(torch.tensor(reach), chunk, chunks)
    none = len(reach) * len(reach[0])
    assert rows.slots.shape == rows.limit.shape
    assert rows.slots.shape[1] <= chunk
    found = {}
    for place, slots, limits in zip(
        *(t.tolist() for t in (rows.chunk_index, rows.slots, rows.limit)), strict=True
    ):
        assert slots[0] != none  # no row is empty
        for slot, limit in zip(slots, limits, strict=True):
            if slot == none:
                assert limit == 0
                continue
            assert 1 <= limit <= chunk
            assert slot not in found
            assert place // chunks == slot // len(reach[0])
            found[slot] = place % chunks * chunk + limit
    wanted = {k: count for k, count in enumerate(c for row in reach for c in row) if count}
    assert found == wanted


def test_rows_are_as_few_and_as_short_as_they_can_be() -> None:
    rows = rows_of(torch.tensor([[3, 1, 2, 3, 5, 6, 0, 4]]), 3, 3)
    assert rows.chunk_index.tolist() == [0, 0, 1, 1]
    assert rows.slots.tolist() == [[0, 1], [2, 3], [4, 5], [7, 8]]
    assert rows.limit.tolist() == [[3, 1], [2, 3], [2, 3], [1, 0]]
    assert rows_of(torch.tensor([[1, 4, 7]]), 3, 3).slots.shape == (3, 1)


@pytest.mark.parametrize("shape", [(2, 0), (2, 3)])
def test_no_heads_or_none_that_reach_anything_have_no_rows(shape: tuple[int, int]) -> None:
    rows = rows_of(torch.zeros(shape, dtype=torch.int64), 4, 2)
    assert rows.slots.shape == (0, 1)
