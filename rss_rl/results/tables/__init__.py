"""Tables of results: what they hold, the runs they need, and what those runs came to."""
