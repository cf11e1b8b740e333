"""The task as an environment: choose which tokens matter, be paid for the right label.

Importing it registers `rss_rl/TokenSelection-v0` with Gymnasium.
"""
