"""What `import rss_rl` offers and the command line calls: prepare, fit, train, and runs."""
