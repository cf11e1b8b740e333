"""Reward models: the score of a selection, before the sparsity cost."""
