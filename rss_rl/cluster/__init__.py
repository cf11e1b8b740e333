"""Everything about Ray, and the only place where it is imported."""
