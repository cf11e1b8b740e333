"""What finished runs came to: scores, agreement with people, comparisons, tables, frontiers."""
