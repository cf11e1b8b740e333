"""Where the published datasets come from, and how they get here."""
