"""Snapshots: classifier and policy for samplers, published part by part.

A snapshot holds those `PARTS` that changed since the previous one; of word vectors only the
changed rows, if they are fewer. Fixed word vectors and other buffers are never sent, as every
process reads or builds the same ones. If word vectors are averaged by row (`RowAverage`), rows are
sent as last written, with the weights they average and the clock, and the reader brings them up to
date.

Legend: P numbers of a part, its parameters and what lies between them, V trainable word vectors,
R rows of them, E embedding size.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from rss_rl.models.embedding import RowAverage, WordEmbedding
from rss_rl.reading.models import Models
from rss_rl.types import Array

CLASSIFIER, WORDS, POLICY = "classifier", "words", "policy"
PARTS = (CLASSIFIER, WORDS, POLICY)
"""The classifier without its trainable word vectors, these word vectors, and the policy."""
_ALIGNED = 16
"""Parameters begin at multiples of so many float32 numbers, 64 bytes."""


class Delta(NamedTuple):
    """The state of a part, or of some rows of the word vectors.

    part     one of `PARTS`
    weights  float32 [P], see `Joined`, a tensor within one process; [R * E] if there are rows
    rows     int64 [R], ascending, of the word vectors; None = the whole part
    leading  float32, as `weights`: the weights that these word vectors average; None = no average
    clock    float64 [1 + R], of the average and of its rows; None = no average
    """

    part: str
    weights: Array | torch.Tensor
    rows: Array | None = None
    leading: Array | None = None
    clock: Array | None = None

    @property
    def full(self) -> bool:
        """Whether it is the whole part, independent of earlier deltas."""
        return self.rows is None

    @property
    def bytes(self) -> int:
        """Bytes that a sampler fetches."""
        arrays = (self.weights, self.rows, self.leading, self.clock)
        return sum(int(array.nbytes) for array in arrays if array is not None)

    def copied(self) -> Delta:
        """The same delta, with weights that no longer change with the learner's."""
        if not self.full:
            return self
        weights = self.weights
        copy = weights.copy() if isinstance(weights, np.ndarray) else weights.clone()
        return self._replace(weights=copy)


class StoredDelta(NamedTuple):
    """A delta in Ray's object store.

    reference  a Ray reference to one of `bundles`
    place      of the delta in it
    """

    part: str
    full: bool
    bytes: int
    reference: Any
    place: int


_D = TypeVar("_D", Delta, StoredDelta)


@dataclass(frozen=True)
class _Versioned(Generic[_D]):
    version: int
    deltas: tuple[_D, ...]

    @property
    def bytes(self) -> int:
        """Bytes that a sampler with the previous snapshot fetches."""
        return sum(delta.bytes for delta in self.deltas)


class Snapshot(_Versioned[Delta]):
    """The changes since the previous snapshot, or the whole model, under one version.

    Its weights may lie where the learner's parameters do, and change with them: a snapshot is sent
    or loaded before the next update, or `copied`.
    """

    def copied(self) -> Snapshot:
        """The same snapshot, with weights that no longer change with the learner's."""
        return Snapshot(self.version, tuple(delta.copied() for delta in self.deltas))


class StoredSnapshot(_Versioned[StoredDelta]):
    """A snapshot whose deltas are in Ray's object store."""

    def then(self, later: StoredSnapshot) -> StoredSnapshot:
        """The deltas of both, to be loaded in this order.

        A whole delta replaces all earlier ones of its part; deltas of rows are added to it.
        """
        replaced = {delta.part for delta in later.deltas if delta.full}
        kept = tuple(delta for delta in self.deltas if delta.part not in replaced)
        return StoredSnapshot(later.version, kept + later.deltas)


def bundles(deltas: Sequence[Delta]) -> tuple[tuple[Delta, ...], tuple[Delta, ...]]:
    """What is stored as one object each: the modules, and the word vectors.

    Each object costs a sampler some 0.5 ms. Rows of word vectors are stored apart, as they are
    needed for longer.
    """
    words = tuple(delta for delta in deltas if delta.part == WORDS)
    return tuple(delta for delta in deltas if delta.part != WORDS), words


class Joined:
    """Parameters that lie in one tensor, which is read and set as one array.

    Each begins at a multiple of 64 bytes, as torch's own tensors do: products of matrices may
    depend on that in their last bits. Parameters that are not float32, or on several devices, are
    copied one by one.
    """

    def __init__(self, parameters: Sequence[nn.Parameter]) -> None:
        self._parameters = parameters
        sizes = [parameter.numel() for parameter in parameters]
        ends = list(itertools.accumulate(-(-size // _ALIGNED) * _ALIGNED for size in sizes))
        starts = [0, *ends][: len(sizes)]
        device = parameters[0].device if parameters else torch.device("cpu")
        self._all = torch.zeros(starts[-1] + sizes[-1] if sizes else 0, device=device)
        self._views = [
            self._all[start : start + parameter.numel()].view(parameter.shape)
            for start, parameter in zip(starts, parameters, strict=True)
        ]
        kinds = {(parameter.dtype, parameter.device) for parameter in parameters}
        self._one_kind = kinds <= {(torch.float32, device)}

    @cached_property
    def _host(self) -> torch.Tensor:
        """Memory that a GPU copies to and from several times as fast as to other memory."""
        on_gpu = self._all.device.type == "cuda"
        return torch.zeros_like(self._all, device="cpu", pin_memory=True) if on_gpu else self._all

    def _elsewhere(self) -> list[tuple[nn.Parameter, torch.Tensor]]:
        """Parameters that do not lie in the tensor, with their places there."""
        pairs = zip(self._parameters, self._views, strict=True)
        return [pair for pair in pairs if pair[0].data_ptr() != pair[1].data_ptr()]

    def resident(self) -> torch.Tensor:
        """float32 [P] on the parameters' device, zeros between them; it changes with them."""
        for parameter, view in self._elsewhere():
            view.copy_(parameter.detach())
            if self._one_kind:
                parameter.data = view
        return self._all

    def read(self) -> Array:
        """`resident` on the CPU; it changes with the parameters, or with the next call."""
        if (values := self.resident()) is not self._host:
            self._host.copy_(values)
        array: Array = self._host.numpy()
        return array

    def write(self, weights: Array | torch.Tensor) -> None:
        """Set them to float32 [P]; an array may be read-only.

        Raises:
            ValueError: another P.
        """
        if weights.shape != self._all.shape:
            raise ValueError(f"a snapshot of {weights.shape} for {len(self._all)} numbers")
        if isinstance(weights, torch.Tensor):
            self._all.copy_(weights)
        else:
            np.copyto(self._host.numpy(), weights)  # torch needs writable memory even to read
            if self._host is not self._all:
                self._all.copy_(self._host)
        for parameter, view in self._elsewhere():
            if self._one_kind:
                parameter.data = view
            else:
                parameter.copy_(view)


def trainable_parts(models: Models) -> dict[str, list[nn.Parameter]]:
    """The trainable parameters of each of `PARTS`, in the order of a delta.

    Frozen ones are equal in every process and are not sent.
    """
    words = models.classifier.embedding.trainable
    learnt, policy = (
        [p for p in module.parameters() if p.requires_grad] for module in models.modules.values()
    )
    return {CLASSIFIER: [p for p in learnt if p is not words], WORDS: [words], POLICY: policy}


class Parts:
    """The trainable parameters of each of `PARTS`, found once.

    Walking a transformer's modules takes longer than copying its trainable parameters.

    Args:
        models: on their final device; their parameters must not be replaced afterwards.
    """

    def __init__(self, models: Models) -> None:
        self.joined = {part: Joined(each) for part, each in trainable_parts(models).items()}
        self._embedding = models.classifier.embedding

    def load(self, snapshot: Snapshot) -> None:
        """Copy the deltas of a snapshot into the modules.

        Raises:
            ValueError: it was made from other modules.
        """
        with torch.no_grad():
            for delta in snapshot.deltas:
                if delta.rows is None:
                    self.joined[delta.part].write(delta.weights)
                else:
                    weights, words = np.asarray(delta.weights), self._embedding.trainable
                    _load_rows(weights, delta.rows, words)
                if delta.part == WORDS:
                    _load_average(delta, self._embedding)


class Publisher:
    """Makes snapshots of the changes since the previous one.

    `note` records which parameters change.

    Args:
        resident: leave whole parts on the device of the models, for a sampler in this process.
    """

    def __init__(self, models: Models, *, resident: bool = False) -> None:
        self._models, self._resident = models, resident
        self._parts: Parts | None = None
        self._changed = set(PARTS)
        self._rows: list[torch.Tensor] = []  # changed rows, unless WORDS is in `_changed`
        self._noted = 0
        self._sent = 0  # rows sent since all were

    def note(self, part: str, rows: torch.Tensor | None = None) -> None:
        """Record that a part has changed, or these rows, int64 [R], of the word vectors."""
        if rows is None:
            self._changed.add(part)
        elif len(rows) and WORDS not in self._changed:
            self._rows.append(rows)
            self._noted += len(rows)
            if self._noted > len(self._models.classifier.embedding.trainable):
                self._changed.add(WORDS)
        if WORDS in self._changed:
            self._forget_rows()

    def note_all(self) -> None:
        """Record that everything may have changed."""
        self._changed.update(PARTS)
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._rows, self._noted = [], 0

    def publish(self, version: int, *, full: bool = True) -> Snapshot:
        """A snapshot of the changes since the last call, or of the whole model if `full`."""
        if full:
            self.note_all()
        deltas = []
        self._parts = self._parts or Parts(self._models)
        embedding = self._models.classifier.embedding
        for part, joined in self._parts.joined.items():
            rows = self._changed_rows() if part == WORDS and part not in self._changed else None
            average = embedding.average if part == WORDS else None
            if rows is not None:
                values = _rows_of(embedding.trainable.detach(), rows)
                deltas.append(_with_average(Delta(WORDS, values, rows.cpu().numpy()), average))
                self._sent += len(rows)
            elif part in self._changed:
                weights = joined.resident() if self._resident else joined.read()
                deltas.append(_with_average(Delta(part, weights), average))
                self._sent = 0 if part == WORDS else self._sent
        self._changed.clear()
        self._forget_rows()
        return Snapshot(version, tuple(deltas))

    def _changed_rows(self) -> torch.Tensor | None:
        """The rows to send, int64 [R]; None if there are none, or all should be sent.

        All are sent once as many rows as there are have been sent, so that a restarted sampler
        never fetches more than twice the word vectors.
        """
        if not self._rows:
            return None
        rows: torch.Tensor = torch.unique(torch.cat(self._rows))
        if len(rows) + self._sent < len(self._models.classifier.embedding.trainable):
            return rows
        self._changed.add(WORDS)
        return None


def _rows_of(table: torch.Tensor, rows: torch.Tensor) -> Array:
    """A copy, float32 [R * E]."""
    values = table.index_select(0, rows.to(table.device)).float().cpu()
    copy: Array = values.reshape(-1).numpy()
    return copy


def _with_average(delta: Delta, average: RowAverage | None) -> Delta:
    """The delta with the weights that its word vectors average."""
    if average is None:
        return delta
    count = len(average.since)
    rows = torch.arange(count) if delta.rows is None else torch.from_numpy(delta.rows)
    clock = torch.cat([average.clock[None], average.since[rows]]).numpy()
    return delta._replace(leading=_rows_of(average.leader, rows), clock=clock)


def _load_average(delta: Delta, embedding: WordEmbedding) -> None:
    """Give the word vectors the average of the delta, or none."""
    if delta.leading is None or delta.clock is None:
        embedding.average = None
        return
    table, average = embedding.trainable.detach(), embedding.average
    if average is None:
        average = embedding.average = RowAverage(table.clone())
    rows = np.arange(len(table)) if delta.rows is None else delta.rows
    average.leader.numpy()[rows] = delta.leading.reshape(len(rows), -1)
    average.since.numpy()[rows] = delta.clock[1:]
    average.clock = torch.tensor(delta.clock[0], dtype=torch.float64)


def _load_rows(weights: Array, rows: Array, table: nn.Parameter) -> None:
    values = weights.reshape(len(rows), -1)
    if values.shape[1] != table.shape[1] or len(rows) > len(table):
        raise ValueError(f"rows {values.shape} of a snapshot for word vectors {tuple(table.shape)}")
    if table.device.type == "cpu" and table.dtype == torch.float32:
        table.detach().numpy()[rows] = values
    else:
        at, new = (torch.from_numpy(np.array(part)).to(table.device) for part in (rows, values))
        table.index_copy_(0, at, new.to(table.dtype))
