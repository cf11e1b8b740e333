from __future__ import annotations

from pathlib import Path
from typing import Any

from tiny_runs import TinySource

from rss_rl.data.manifest import Manifest
from rss_rl.data.prepare import prepare


def changed(manifest: Manifest, **fields: Any) -> Manifest:
    tree = manifest.model_dump(mode="json")
    tree["splits"]["train"] |= fields
    return Manifest.model_validate_json(Manifest.model_validate(tree).model_dump_json())


def without_sums(manifest: Manifest) -> Manifest:
    """As an earlier version wrote it."""
    tree = manifest.model_dump(mode="json")
    for part in (tree["vocabulary"], tree["vectors"]):
        part["sha256"] = None
    for split in tree["splits"].values():
        split["longest_texts"] = []
        for shard in split["shards"]:
            shard["sha256"] = None
    return Manifest.model_validate(tree)


def test_checksums_that_were_not_noted_make_no_other_data(tmp_path: Path) -> None:
    manifest = prepare(TinySource(), tmp_path / "data", dim=4)
    old = without_sums(manifest)
    assert old != manifest
    assert old.is_of_the_same_data(manifest)
    assert manifest.is_of_the_same_data(old)
    other = prepare(TinySource(), tmp_path / "other", dim=4, seed=1)
    assert not manifest.is_of_the_same_data(other)  # other vectors: other sums
    assert not old.is_of_the_same_data(without_sums(other))  # another seed
    assert not manifest.is_of_the_same_data(changed(manifest, bad_rows=3))
