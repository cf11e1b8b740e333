"""What people look at in a browser: the explanation page and the report of runs."""
