"""Tables of results: their specification, the runs they need, and the scores of those runs."""
