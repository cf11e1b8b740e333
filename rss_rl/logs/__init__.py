"""What a run writes down while it goes on: metrics for TensorBoard and Parquet, events as JSON lines."""
