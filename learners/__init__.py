"""Updates of the two parameter groups, phases and optimisers; no environment here."""
