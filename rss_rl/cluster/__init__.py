"""Samplers, learners and jobs on Ray; the only package that imports it."""

import os
import sys

# Set before Ray is imported: otherwise a call after `ray.shutdown`, such as from a thread of Ray
# Data, would start another cluster, without a token.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
if "ray" not in sys.modules:  # which reads it once; later it would be believed, but not followed
    os.environ.setdefault("RAY_AUTH_MODE", "token")


def inside_job() -> bool:
    """Whether this process is the entry point of a job that was submitted to a cluster."""
    return "RAY_JOB_CONFIG_JSON_ENV_VAR" in os.environ
