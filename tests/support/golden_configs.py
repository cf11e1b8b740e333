"""The configurations of the golden set, in the form of commit b9a4141."""

from __future__ import annotations

from typing import Any

PHASES = [
    {"name": "warm-up", "supervised": True, "selection": "all", "steps": 4, "restore_best": True},
    {"name": "frozen", "policy": True, "steps": 4},
    {"name": "co-train", "supervised": True, "policy": True, "steps": 8},
]

BASE = """
# What the others extend.
data: prepared/sentences
seed: 3
batch_size: 8
model: {hidden: 8, attention: eager}
policy: {hidden: 6}
learner:
  supervised: {learning_rate: 2e-2}
phases:
  - {name: warm-up, supervised: true, selection: all, steps: 4, patience: 3, restore_best: true}
  - {name: frozen, policy: true, patience: 4}
  - {name: co-train, supervised: true, policy: true, steps: 8, alternate_every: 2}
evaluation: {every: 4, selections: 2, batch_size: 16, best_metric: reward, all_tokens: false}
checkpoint: {every: 3, keep_last: 1}
"""

CONFIGS = {
    "defaults": """
data: prepared/pairs
phases: [{name: co-train, supervised: true, policy: true, steps: 8}]
""",
    "resan": """
extends: base.yaml
model:
  encoder: resan
  keep_unselected: true
  unselected_context: dependents
  tanh_scale: 3
  attention_error: 0.1
  head_hidden: 5
  activation: relu
  dropout: 0.1
  highway: false
policy:
  name: rss
  options: {temperature: 0.7}
  reads: example
  context: lstm
  shared: true
  initial_probability: 0.6
reward: {sparsity_cost: 0.1, coherence_cost: 0.05, target_share: 0.3}
learner: {baseline: moving-average, baseline_momentum: 0.9, correction: truncated-token,
  ratio_max: 1.5, weight_average: 0.9}
sampler: {max_policy_lag: 2, run_ahead: 1, publish_every: 2, in_flight: 1, selections: 3, shards: 1}
""",
    "resan-faithful": """
extends: resan.yaml
model: {keep_unselected: false, unselected_context: real, attention: compiled}
policy: {context: gru}
learner: {estimator: reinforce, correction: truncated-sum}
""",
    "source2token": """
extends: base.yaml
model: {encoder: source2token}
policy: {name: select-all}
phases: [{name: all, supervised: true, selection: all, steps: 9}]
""",
    "mean": """
extends: base.yaml
model: {encoder: mean}
policy: {name: bernoulli, initial_probability: 0.3}
phases: [{name: random words, supervised: true, steps: 9}]
""",
    "disan": """
extends: base.yaml
data: prepared/pairs
model: {encoder: disan, attention_error: 0.2, tanh_scale: 4.0, attention: compiled}
policy: {name: hardkuma, options: {low: -0.2, high: 1.2}, initial_probability: 0.8}
learner: {entropy_cost: 0.01}
""",
    "bilstm": """
extends: base.yaml
model: {encoder: bilstm}
policy: {name: gumbel, options: {temperature: 0.5}, context: gru}
""",
    "bilstm-gumbel-scored": """
extends: bilstm.yaml
learner: {estimator: reinforce}
""",
    "bigru": """
extends: base.yaml
model: {encoder: bigru}
policy: {name: top-k, options: {tokens: 3}, shared: true}
""",
    "bigru-share": """
extends: base.yaml
model: {encoder: bigru}
policy: {name: top-k, options: {share: 0.25, temperature: 2.0}}
learner: {estimator: pathwise}
""",
    "bisru": """
extends: base.yaml
model: {encoder: bisru}
policy: {name: stop-words, options: {words: [the, did]}}
phases: [{name: words, supervised: true, steps: 9}]
""",
    "cnn": """
extends: base.yaml
model: {encoder: cnn, cnn_windows: [2, 3], cnn_filters: 5}
learner: {estimator: arm}
""",
    "hierarchical-cnn": """
extends: base.yaml
model: {encoder: hierarchical-cnn, cnn_layers: 2, cnn_window: 3}
learner: {estimator: disarm}
sampler: {selections: 2}
""",
    "multi-head": """
extends: base.yaml
model: {encoder: multi-head, attention_heads: 4}
learner: {estimator: flip}
reward: {penalty: product}
""",
    "attention": """
extends: base.yaml
model: {encoder: attention, score_loss: squared, score_bins: 7}
learner: {baseline: self-critical, correction: clipped-token, ratio_clip: 0.1}
""",
    "biblosan": """
extends: base.yaml
model: {encoder: biblosan, block_length: 5, sentence_block_length: 2, block_global: false}
policy: {name: iterative, cell: gru, shared: true}
learner: {estimator: ppo-clip, ratio_clip: 0.3}
""",
    "biblosan-global": """
extends: base.yaml
data: prepared/passages
model: {encoder: biblosan, block_local: false, tanh_scale: 2.0}
policy: {name: iterative}
""",
    "cloze": """
extends: base.yaml
data: prepared/cloze
model: {reader: stanford, reader_hidden: 16, cloze_output: entities, cloze_entities: 40}
learner: {baseline: none, correction: none}
""",
    "cloze-words": """
extends: cloze.yaml
model: {reader: sequential, cloze_output: words}
""",
    "ray": """
extends: base.yaml
learner:
  device: cuda
  actors: 2
  gpus: 1
  placement: SPREAD
  threads: 2
  precision: bfloat16
  timeout_s: 100
  start_timeout_s: 60.0
  max_restarts: 1
sampler:
  backend: ray
  actors: 3
  threads: 2
  precision: bfloat16
  timeout_s: 50
  start_timeout_s: 70
  resources: {spot: 1}
  max_restarts: 2
""",
    "optimizers": """
extends: base.yaml
learner:
  supervised: {name: adadelta, learning_rate: 5e-1, rho: 0.9, eps: 1e-6, l2: 1e-5, clip_norm: null,
    decay_updates: 200, embedding_rate: 0.2, betas: [0.8, 0.99]}
  policy: {name: sgd, learning_rate: 0.1, rho: 0.8, eps: 1.0e-7, l2: 1e-4, clip_norm: 1,
    decay_updates: 100, embedding_rate: 0.0, betas: [0.7, 0.98]}
phases: [{name: co-train, supervised: true, policy: true, steps: 8}]
""",
    # Settings of other encoders, policies and estimators than the chosen ones have no effect.
    "unused": """
extends: resan.yaml
model: {encoder: mean, cnn_filters: 7, block_length: 3, attention_heads: 3}
policy: {name: hardkuma, options: {low: -0.1, high: 1.1}, cell: gru}
learner: {estimator: pathwise, baseline: self-critical}
sampler: {max_policy_lag: 0, publish_every: 1}
reward: {target_share: null}
""",
}

OVERRIDES: dict[str, dict[str, list[str]]] = {
    "base": {
        "": [],
        "-cnn": ["model.encoder=cnn", "model.cnn_windows=[2]", "model.cnn_filters=3"],
        "-top-k": ["policy.name=top-k", "policy.options.tokens=2", "policy.context=lstm"],
        "-ppo": ["learner.estimator=ppo-clip", "learner.ratio_clip=0.4", "phases.0.steps=2"],
    },
    "biblosan": {"": [], "-longer": ["model.block_length=9", "policy.cell=rnn"]},
}
"""By configuration, what is appended to its name, and `key=value` as the command line has it."""


def _run(
    data: str, model: dict[str, Any], policy: dict[str, Any], **changes: Any
) -> dict[str, Any]:
    tree: dict[str, Any] = {
        "data": f"prepared/{data}",
        "batch_size": 8,
        "model": {"hidden": 4, "attention": "eager"} | model,
        "policy": {"hidden": 4, "initial_probability": 0.5} | policy,
        "learner": {"supervised": {"learning_rate": 0.05}, "policy": {"learning_rate": 0.05}},
        "reward": {"sparsity_cost": 0.01},
        "sampler": {"selections": 2, "shards": 2},
        "evaluation": {"every": 4, "selections": 2, "all_tokens": False},
        "checkpoint": {"every": 3, "keep_last": 1},
        "phases": PHASES,
    }
    for key, value in changes.items():
        tree[key] = {**tree.get(key, {}), **value} if isinstance(value, dict) else value
    return tree


RUNS: dict[str, tuple[dict[str, Any], int]] = {
    "resan": (
        _run(
            "sentences",
            {"encoder": "resan", "keep_unselected": False, "activation": "relu"},
            {"name": "rss", "options": {"temperature": 0.9}},
            reward={"target_share": 0.5},
            learner={"baseline": "leave-one-out", "weight_average": 0.9},
            evaluation={"all_tokens": True},
        ),
        11,
    ),
    "hardkuma-disan": (
        _run(
            "pairs",
            {"encoder": "disan", "tanh_scale": 4.0, "highway": False},
            {"name": "hardkuma", "options": {"low": -0.2, "high": 1.2}, "shared": True,
             "initial_probability": 0.7},
            learner={"supervised": {"name": "adadelta", "learning_rate": 3.0, "l2": 1e-5}},
        ),
        6,
    ),
    "iterative-biblosan": (
        _run(
            "sentences",
            {"encoder": "biblosan", "block_length": 5},
            {"name": "iterative", "cell": "gru"},
            learner={"estimator": "ppo-clip", "ratio_clip": 0.3, "baseline": "moving-average"},
            reward={"coherence_cost": 0.05},
            phases=[PHASES[0], PHASES[2] | {"alternate_every": 2}],
            seed=2,
        ),
        7,
    ),
    "disarm-stanford": (
        _run(
            "cloze",
            {"reader": "stanford", "reader_hidden": 3, "cloze_output": "entities",
             "cloze_entities": 5},
            {"context": "gru", "reads": "example", "hidden": 3},
            learner={
                "estimator": "disarm",
                "entropy_cost": 0.01,
                "policy": {"learning_rate": 0.005},
            },
            reward={"sparsity_cost": 0.0},
        ),
        9,
    ),
    # Stopped while the same model is trained with all tokens.
    "flip-cnn": (
        _run(
            "passages",
            {"encoder": "cnn", "cnn_windows": [2, 3], "cnn_filters": 3, "dropout": 0.1},
            {"shared": True},
            learner={"estimator": "flip"},
            evaluation={"all_tokens": True},
        ),
        21,
    ),
    "top-k-source2token": (
        _run(
            "sentences",
            {"encoder": "source2token", "head_hidden": 4},
            {"name": "top-k", "options": {"share": 0.3, "temperature": 2.0}},
            reward={"sparsity_cost": 0.1},
        ),
        10,
    ),
    "gumbel-resan": (
        _run(
            "sentences",
            {
                "encoder": "resan",
                "keep_unselected": True,
                "unselected_context": "dependents",
                "attention_error": 0.1,
            },
            {"name": "gumbel", "options": {"temperature": 0.5}, "shared": True},
            learner={"policy": {"name": "sgd", "learning_rate": 0.5}},
        ),
        10,
    ),
    "select-all-multi-head": (
        _run(
            "pairs",
            {"encoder": "multi-head", "attention_heads": 2},
            {"name": "select-all"},
            phases=[{"name": "all", "supervised": True, "selection": "all", "steps": 9}],
        ),
        5,
    ),
}  # fmt: skip
"""By name: the configuration, and after how many updates the run is stopped."""
