"""Estimators of the policy's gradient; the maths is in `rss_rl.ops`."""
