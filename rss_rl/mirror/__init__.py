"""A run's copy on a storage path: claimed, kept up, restored."""
