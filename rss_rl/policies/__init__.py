"""Selection policies: which tokens are heads, which are dependents."""
