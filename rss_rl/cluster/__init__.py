"""Samplers, learners and jobs on Ray; the only package that imports it."""

import os

# Set before Ray is imported: otherwise a call after `ray.shutdown`, such as from a thread of Ray
# Data, would start another cluster, without a token.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
