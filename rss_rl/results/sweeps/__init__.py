"""Sweeps: many runs from one specification, and what they show together."""
