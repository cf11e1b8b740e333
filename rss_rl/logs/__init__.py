"""The logs of a run: metrics for TensorBoard and Parquet, events as JSON lines."""
