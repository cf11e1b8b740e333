"""From a user's files to padded batches: sources, tokens, vocabulary, vectors, the Arrow store."""
