"""The public API behind `import rss_rl` and the command line: prepare, fit, train, runs."""
