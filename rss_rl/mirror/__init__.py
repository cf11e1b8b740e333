"""The copy of a run on a storage path: claimed, updated, restored."""
