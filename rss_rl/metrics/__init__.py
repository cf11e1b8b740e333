"""Metrics: measures of a split's selections and predictions."""
