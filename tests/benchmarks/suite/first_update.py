"""The demo trained, Ray included, until its first update: `-m suite.first_update DATA RUN`."""

from __future__ import annotations

__all__: list[str] = []

import sys
from pathlib import Path

from rich.console import Console


def main() -> None:
    """As `rss-rl train` does, which would train on."""
    from rss_rl.cluster.connection import connect, shutdown
    from rss_rl.cluster.roles import RayRoles
    from rss_rl.config import load_config
    from rss_rl.ops.native import load_ahead
    from rss_rl.packaged import find_config
    from rss_rl.training.run import train
    from rss_rl.training.session import UpdateReport

    data, run = sys.argv[1:]
    # Selections are sampled from the first update on, or the samplers could start after it.
    phase = "phases=[{name: co-train, supervised: true, policy: true, steps: 9}]"
    config = load_config(find_config("demo"), [f"data={data}", "sampler.backend=ray", phase])
    load_ahead()
    cluster = connect(None, cores=config.sampler.actors + 1, dashboard=False, insecure=False)
    try:
        events = train(config, Path(run), roles=RayRoles())
        for event in events:
            if isinstance(event, UpdateReport):
                Console().print("updated")
                sys.stdout.flush()
                break
        events.close()
    finally:
        shutdown(cluster)


if __name__ == "__main__":
    main()
