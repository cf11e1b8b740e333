"""A classifier and a policy that read texts: built, opened from a run, walked over examples."""
