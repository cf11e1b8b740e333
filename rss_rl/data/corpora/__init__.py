"""Sources of published datasets, in their official formats, and of generated examples."""
