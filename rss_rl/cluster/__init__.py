"""Everything about Ray, and the only place where it is imported."""

import os

# Before Ray is imported: a call after `ray.shutdown`, as of a thread of Ray Data's, would start
# another cluster, and one without a token.
os.environ.setdefault("RAY_ENABLE_AUTO_CONNECT", "0")
