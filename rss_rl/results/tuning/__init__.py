"""Hyperparameter search: spaces, trials, influence of each key, and reports."""
