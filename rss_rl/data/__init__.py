"""From source files to padded batches: sources, tokens, vocabulary, vectors, the Arrow store."""
