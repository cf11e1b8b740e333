"""What a run writes down: metrics for TensorBoard and Parquet, events as JSON lines."""
