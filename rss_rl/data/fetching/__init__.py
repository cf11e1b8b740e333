"""The published datasets: where they are, and downloading them."""
