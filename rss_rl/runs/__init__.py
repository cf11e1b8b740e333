"""A run on disk: its directory and lock, checkpoints, and what it was made with."""
