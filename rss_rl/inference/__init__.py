"""A trained model in use in Python and over files."""
