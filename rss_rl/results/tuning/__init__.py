"""Search for settings: spaces, trials, what mattered, and the files that say so."""
