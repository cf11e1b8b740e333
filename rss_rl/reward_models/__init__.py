"""Reward models: what says how good a selection is, before its tokens are charged for."""
