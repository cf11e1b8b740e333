"""Results of finished runs: scores, agreement with people, comparisons, tables, frontiers."""
