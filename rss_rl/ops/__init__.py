"""The mathematics as functions of tensors: no state, configuration, devices or logging."""

import os
import sys

is_forked = False
"""Whether torch computes in one thread alone: those of the process that it was forked from are
gone, and it would wait for them without end."""


def _compute_alone() -> None:
    global is_forked
    is_forked = True
    if "torch" in sys.modules:
        sys.modules["torch"].set_num_threads(1)


os.register_at_fork(after_in_child=_compute_alone)
