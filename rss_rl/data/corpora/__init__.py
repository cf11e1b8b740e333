"""Sources of the published datasets, in their official formats, and of made examples."""
