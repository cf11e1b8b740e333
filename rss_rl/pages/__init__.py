"""HTML pages: the explanation of texts, the report of runs, the page of the server."""
