"""Web server for trained models: a page and a JSON interface; imported only by `rss-rl serve`."""
