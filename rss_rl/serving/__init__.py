"""Web server for a trained model: a page and a JSON interface; imported only by `rss-rl serve`."""
