"""Sources, tokens and vocabulary, vectors, the memory-mapped store and batches; no torch here."""
