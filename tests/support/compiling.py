"""A mark for tests of compiled kernels, which need a C++ compiler."""

from __future__ import annotations

import pytest

from rss_rl.ops.native import missing_compiler

needs_compiler = pytest.mark.skipif(missing_compiler() is not None, reason=str(missing_compiler()))
