"""One small component of each kind that rss-rl can be extended by; rss-rl does not know them."""
