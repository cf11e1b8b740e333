"""What sequential sampling costs: RSS against iterative sampling. A table and a JSON file.

python tests/benchmarks/policies.py [OUT.json]

64 sentences of 20 tokens, K = 4 selections of each, sizes 300 as in the paper; on the GPU where
there is one. Times are of a batch, the fastest of rounds that take the policies in turn; ratios are
to RSS. sample: draw; threshold: the deterministic selection; update: evaluate given selections,
backpropagate.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor

from rss_rl.config import PolicyConfig
from rss_rl.policies.build import build_policy
from rss_rl.policies.protocol import Policy

B, N, K, SIZE, ROUNDS = 64, 20, 4, 300, 7
POLICIES = {
    "rss": PolicyConfig(),
    "iterative rnn": PolicyConfig(name="iterative"),
    "iterative gru": PolicyConfig(name="iterative", options={"cell": "gru"}),
    "rss over lstm": PolicyConfig(options={"context": "lstm"}),
    "rss over gru": PolicyConfig(options={"context": "gru"}),
}


def milliseconds(work: Callable[[], object], device: torch.device) -> float:
    """One run of `work`, the device's queue included."""
    start = time.perf_counter()
    work()
    if device.type == "cuda":
        torch.cuda.synchronize()
    return 1e3 * (time.perf_counter() - start)


def works(policy: Policy, device: torch.device) -> dict[str, Callable[[], object]]:
    """What is timed, by name."""
    embedded = torch.randn(B, N, SIZE, device=device)
    valid = torch.ones(B, N, dtype=torch.bool, device=device)
    uniforms = torch.rand(K, B, 2, N, device=device)

    @torch.inference_mode()
    def sample() -> Tensor:
        return policy(embedded, valid).sample(uniforms).selection

    @torch.inference_mode()
    def threshold() -> Tensor:
        return policy(embedded, valid).mode

    given = uniforms < 0.5

    def update() -> None:
        policy(embedded, valid).evaluate(given).log_prob.sum().backward()

    return {"sample": sample, "threshold": threshold, "update": update}


def main() -> None:
    """Measure, print and write."""
    torch.manual_seed(0)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    tasks = {
        (name, part): work
        for name, config in POLICIES.items()
        for part, work in works(build_policy(config, SIZE, "elu").to(device), device).items()
    }
    best = dict.fromkeys(tasks, float("inf"))
    for turn in range(ROUNDS + 1):
        for key, work in tasks.items():
            took = milliseconds(work, device)
            if turn:  # the first is for warming up
                best[key] = min(best[key], took)
    rows = []
    for (name, part), took in best.items():
        ratio = took / best["rss", part]
        rows.append({"policy": name, "part": part, "ms": took, "ratio": ratio})
        print(f"{name:14} {part:10} {took:9.2f} ms {ratio:7.2f} x")
    if len(sys.argv) > 1:
        found = {"device": device.type, "threads": torch.get_num_threads(), "rows": rows}
        Path(sys.argv[1]).write_text(json.dumps(found, indent=2))


if __name__ == "__main__":
    main()
