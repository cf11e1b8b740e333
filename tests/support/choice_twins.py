"""Slow numpy twins of answer-sentence selection and cloze reading, one example at a time.

x [n, e] embeddings; `p` holds a module's parameters under their names, float64.
"""

from __future__ import annotations

import itertools

import encoder_twins
import numpy as np
import twins
from twins import Parameters, part


def bigru(x: np.ndarray, p: Parameters) -> np.ndarray:
    """h_i = [forward; backward], [n, 2 h]."""
    steps = [encoder_twins.gru_step(part(p, f"{way}.")) for way in ("ahead", "back")]
    return encoder_twins.both_ways(x, (steps[0], steps[1]), (p["ahead.weight_hh_l0"].shape[1],))


def softmax(a: np.ndarray) -> np.ndarray:
    weights = np.exp(a - a.max()) if len(a) else a
    return weights / weights.sum() if len(a) else a


def cloze(
    passage: np.ndarray,
    question: np.ndarray,
    marks: list[int],
    candidates: int,
    p: Parameters,
    reader: str,
    output: str,
) -> list[float]:
    """Scores of the candidates, by what is left to read."""
    h = bigru(passage, part(p, "passage."))
    size = p["passage.ahead.weight_hh_l0"].shape[1]
    j = np.zeros(2 * size)
    if len(question):
        states = bigru(question, part(p, "question."))
        j = np.concatenate([states[-1, :size], states[0, size:]])
    w = p["attention.weight"]
    if reader == "stanford":
        alpha = softmax(np.array([j @ w @ h_i for h_i in h]))
    else:
        gamma = np.array([j * (w @ h_i) for h_i in h]).reshape(len(h), 2 * size)
        alpha = softmax(bigru(gamma, part(p, "attention.gru.")).sum(1))
    o = np.zeros(2 * size)
    for alpha_i, h_i in zip(alpha, h, strict=True):
        o = o + alpha_i * h_i
    if output == "entities":
        return [float(p["output.weight"][c] @ o) for c in range(candidates)]
    mass = [sum(a for a, c in zip(alpha, marks, strict=True) if c == k) for k in range(candidates)]
    return [float(np.log(m + 1e-6)) for m in mass]


def passage_scores(
    sentences: list[np.ndarray], question: np.ndarray, p: Parameters, activation: str, c: float
) -> list[float]:
    """Scores of the sentences by DiSAN, with DiSA over the sentences."""
    q = twins.source2token(question, part(p, "question_pool."), activation)
    q = twins.dense(q, part(p, "question."), activation)
    f = []
    for x in sentences:
        vector = twins.disan(x, part(p, "encoder."), activation, c)
        s = twins.dense(vector, part(p, "sentence."), activation)
        f.append(np.concatenate([s, q, s - q, s * q]))
    g = np.concatenate(
        [
            twins.disa(np.array(f), part(p, f"context.directions.{k}."), activation, c, ahead)
            for k, ahead in enumerate((True, False))
        ],
        1,
    )
    scores = twins.linear(twins.dense(g, part(p, "dense."), activation), part(p, "output."))
    return [float(score) for score in scores[:, 0]]


def ranking(scores: np.ndarray, right: np.ndarray) -> tuple[float, float]:
    """Mean AP and RR of one question over every order that the scores allow."""
    precisions, reciprocals = [], []
    for order in itertools.permutations(range(len(scores))):
        falling = [scores[i] for i in order]
        if falling != sorted(falling, reverse=True):
            continue
        ranks = [rank for rank, i in enumerate(order, 1) if right[i]]
        at_right = [found / rank for found, rank in enumerate(ranks, 1)]
        precisions.append(np.mean(at_right) if ranks else 0.0)
        reciprocals.append(1 / ranks[0] if ranks else 0.0)
    return float(np.mean(precisions)), float(np.mean(reciprocals))
