"""What a sampler or evaluator works with: classifier and policy, published part by part.

Of the parts named in `PARTS` a snapshot holds those that changed since the one before, as copies;
of word vectors the rows that changed, where those are fewer. Fixed word vectors, a buffer that is
not persistent, never travel: whoever opens the data has them. Other buffers do, as they are.
Where word vectors are an average by row (`RowAverage`), rows travel as they were last written, with
those they follow and with the clock, and whoever reads them brings them up to date.

Legend: P parameters of a part, V trainable word vectors, R rows of them, E embedding size.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Generic, NamedTuple, TypeVar

import numpy as np
import torch
from torch import nn

from rss_rl.config import PolicyConfig, Reads, RunConfig
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.models.attention_choice import outer_backend
from rss_rl.models.build import build_classifier
from rss_rl.models.embedding import RowAverage, WordEmbedding
from rss_rl.models.encoders.protocol import TrainingLengths
from rss_rl.models.protocol import Classifier
from rss_rl.policies.adapters import PolicyModule
from rss_rl.policies.build import build_policy
from rss_rl.policies.inputs import check_reads, input_size, policy_inputs
from rss_rl.pretrained.context import ContextReader
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.rollouts.device import multiplies_bfloat16
from rss_rl.seeding import stream_key
from rss_rl.types import Array, LabelSpec

CLASSIFIER, WORDS, POLICY = "classifier", "words", "policy"
PARTS = (CLASSIFIER, WORDS, POLICY)
"""The classifier without its trainable word vectors, those, and the policy."""


class Delta(NamedTuple):
    """The state of a part, or of some rows of the word vectors.

    part     one of `PARTS`
    weights  float32 [P], all parameters one after the other; [R * E] where there are rows
    buffers  uint8, the bytes of the persistent buffers one after the other
    rows     int64 [R], ascending, the word vectors meant; None = the whole part
    leading  float32, as `weights`: what these word vectors follow; None = they follow nothing
    clock    float64 [1 + R], that of the average and those of its rows; None = there is none
    """

    part: str
    weights: Array
    buffers: Array
    rows: Array | None = None
    leading: Array | None = None
    clock: Array | None = None

    @property
    def whole(self) -> bool:
        """It needs no delta before it."""
        return self.rows is None

    @property
    def bytes(self) -> int:
        """What a sampler has to fetch."""
        arrays = (self.weights, self.buffers, self.rows, self.leading, self.clock)
        return sum(int(array.nbytes) for array in arrays if array is not None)


class StoredDelta(NamedTuple):
    """A delta in Ray's object store: `reference` is of Ray's, to a `Delta`."""

    part: str
    whole: bool
    bytes: int
    reference: Any


@dataclass(frozen=True)
class Snapshot:
    """What changed since the snapshot before, or everything, under one version."""

    version: int
    deltas: tuple[Delta, ...]

    @property
    def bytes(self) -> int:
        """What a sampler has to fetch that holds the one before."""
        return sum(delta.bytes for delta in self.deltas)


@dataclass(frozen=True)
class StoredSnapshot:
    """A snapshot whose deltas lie in Ray's object store, where learners left them."""

    version: int
    deltas: tuple[StoredDelta, ...]

    @property
    def bytes(self) -> int:
        """See `Snapshot`."""
        return sum(delta.bytes for delta in self.deltas)


_D = TypeVar("_D", Delta, StoredDelta)


class Publications(Generic[_D]):
    """The deltas that make up the newest state, so that a sampler is given what it lacks of them.

    A whole delta takes the place of all before it of its part; rows are kept beside it.
    """

    def __init__(self) -> None:
        self._deltas: dict[str, list[tuple[int, _D]]] = {}
        self.count = 0

    def add(self, deltas: Sequence[_D]) -> None:
        """The next publication.

        Raises:
            ValueError: rows of a part of which there is no whole delta.
        """
        self.count += 1
        for delta in deltas:
            kept = self._deltas.setdefault(delta.part, [])
            if delta.whole:
                kept.clear()
            elif not kept:
                raise ValueError(f"rows of '{delta.part}' before the whole of it")
            kept.append((self.count, delta))

    def after(self, count: int) -> list[_D]:
        """What whoever holds the first `count` publications lacks, to be loaded in this order."""
        return [delta for kept in self._deltas.values() for number, delta in kept if number > count]


class Models(NamedTuple):
    """Classifier and policy of a run, and what the policy reads."""

    classifier: Classifier
    policy: PolicyModule
    reads: Reads = "sentence"
    context: ContextReader | None = None

    def policy_inputs(
        self,
        tokens: Sequence[torch.Tensor],
        valid: Sequence[torch.Tensor],
        states: Sequence[torch.Tensor] | None = None,
    ) -> list[torch.Tensor]:
        """What the policy reads of the sentences of a batch; see `policy_inputs`.

        States that a contextual policy reads and that are not given are computed.
        """
        if self.context is not None and states is None:
            states = [self.context.states(*slot) for slot in zip(tokens, valid, strict=True)]
        embedding = self.classifier.embedding
        return policy_inputs(self.policy, embedding, tokens, valid, self.reads, states)

    @contextmanager
    def evaluating(self) -> Iterator[None]:
        """Both in evaluation mode inside; on leaving, each module is back in the mode it was in."""
        modules = [*self.classifier.modules(), *self.policy.modules()]
        training = [module for module in modules if module.training]
        self.classifier.eval()
        self.policy.eval()
        try:
            yield
        finally:
            for module in training:
                module.training = True

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Both by the names that checkpoints give them."""
        return {"classifier": self.classifier, "policy": self.policy}

    def parameters(self) -> list[nn.Parameter]:
        """All parameters."""
        return [*self.classifier.parameters(), *self.policy.parameters()]

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The parameters of each of `PARTS` that may learn, in the order of a delta."""
        words = self.classifier.embedding.trainable
        others = [p for p in _learnt(self.classifier) if p is not words]
        return {CLASSIFIER: others, WORDS: [words], POLICY: _learnt(self.policy)}

    def publish(self, version: int) -> Snapshot:
        """Copies of everything."""
        return Publisher(self).publish(version, whole=True)

    def load(self, snapshot: Snapshot) -> None:
        """Copy the deltas of a snapshot into the modules.

        Raises:
            ValueError: when it was made by other modules.
        """
        Parts(self).load(snapshot)


class Parts:
    """The parameters that may learn and the persistent buffers of each of `PARTS`, found once.

    To walk through the modules of a transformer takes longer than to copy what learns of them.

    Args:
        models: on their device; their parameters are not replaced from now on.
    """

    def __init__(self, models: Models) -> None:
        self.parameters = models.parts()
        self._embedding = models.classifier.embedding
        self._places = {part: _persistent(module) for part, module in models.modules.items()}

    def buffers(self, part: str) -> list[torch.Tensor]:
        """Those that are there now, in the order of a delta."""
        return [held[name] for held, name in self._places.get(part, [])]

    def load(self, snapshot: Snapshot) -> None:
        """See `Models.load`."""
        with torch.no_grad():
            for delta in snapshot.deltas:
                parameters = self.parameters[delta.part]
                if delta.rows is None:
                    _load_weights(delta, parameters)
                else:
                    _load_rows(delta.weights, delta.rows, parameters[0])
                if delta.part == WORDS:
                    _load_average(delta, self._embedding)
                _load_buffers(delta.buffers, self.buffers(delta.part))


class Publisher:
    """Snapshots of what changed since the one before.

    `note` records which parameters change; buffers, which anyone may change, are compared.
    """

    def __init__(self, models: Models) -> None:
        self._models = models
        self._parts: Parts | None = None
        self._changed = set(PARTS)
        self._rows: list[torch.Tensor] = []  # changed, where WORDS is not among the changed parts
        self._noted = 0
        self._sent = 0  # rows, since all of them
        self._buffers: dict[str, bytes] = {}

    def note(self, part: str, rows: torch.Tensor | None = None) -> None:
        """A part has changed, or of the word vectors these rows, int64 [R]."""
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
        """Everything may be another now."""
        self._changed.update(PARTS)
        self._forget_rows()

    def _forget_rows(self) -> None:
        self._rows, self._noted = [], 0

    def publish(self, version: int, *, whole: bool) -> Snapshot:
        """Copies of what changed since the last call, or of everything where `whole`."""
        if whole:
            self.note_all()
        deltas = []
        self._parts = self._parts or Parts(self._models)
        parts = self._parts.parameters
        for part in PARTS:
            raw = _bytes_of(self._parts.buffers(part))
            same = self._buffers.get(part) == raw.tobytes()
            rows = self._changed_rows() if part == WORDS and part not in self._changed else None
            average = self._models.classifier.embedding.average if part == WORDS else None
            if rows is not None:
                deltas.append(_with_average(_rows_delta(parts[part][0], rows), average))
                self._sent += len(rows)
            elif part in self._changed or not same:
                deltas.append(_with_average(Delta(part, _flat(parts[part]), raw), average))
                self._buffers[part] = raw.tobytes()
                self._sent = 0 if part == WORDS else self._sent
        self._changed.clear()
        self._forget_rows()
        return Snapshot(version, tuple(deltas))

    def _changed_rows(self) -> torch.Tensor | None:
        """Those to be sent, int64 [R]; None where there are none, or all of them are better sent.

        They are once rows have been sent as many as there are: so a sampler that starts anew is
        never given more than twice the word vectors.
        """
        if not self._rows:
            return None
        rows: torch.Tensor = torch.unique(torch.cat(self._rows))
        if len(rows) + self._sent < len(self._models.classifier.embedding.trainable):
            return rows
        self._changed.add(WORDS)
        return None


def _learnt(module: nn.Module) -> list[nn.Parameter]:
    """What never learns is what it was when each process made it, and does not travel."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _persistent(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """Where each buffer is, as another may take its place.

    Found without `state_dict`, which brings all word vectors of an average up to date.
    """
    return [
        (part._buffers, name)
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and name not in part._non_persistent_buffers_set
    ]


def _flat(parameters: Sequence[nn.Parameter]) -> Array:
    """A copy, float32 [P]."""
    flat = [p.detach().reshape(-1).float().cpu() for p in parameters]
    copy: Array = torch.cat(flat).numpy() if flat else np.zeros(0, np.float32)
    return copy


def _rows_delta(table: nn.Parameter, rows: torch.Tensor) -> Delta:
    values = _rows_of(table.detach(), rows)
    return Delta(WORDS, values, np.zeros(0, np.uint8), rows.cpu().numpy())


def _rows_of(table: torch.Tensor, rows: torch.Tensor) -> Array:
    """A copy, float32 [R * E]."""
    values = table.index_select(0, rows.to(table.device)).float().cpu()
    copy: Array = values.reshape(-1).numpy()
    return copy


def _with_average(delta: Delta, average: RowAverage | None) -> Delta:
    """The delta with what its word vectors follow."""
    if average is None:
        return delta
    count = len(average.since)
    rows = torch.arange(count) if delta.rows is None else torch.from_numpy(delta.rows)
    clock = torch.cat([average.clock[None], average.since[rows]]).numpy()
    return delta._replace(leading=_rows_of(average.leader, rows), clock=clock)


def _load_average(delta: Delta, embedding: WordEmbedding) -> None:
    """Let word vectors follow what they follow where the delta comes from."""
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


def _bytes_of(buffers: Sequence[torch.Tensor]) -> Array:
    """A copy, uint8."""
    raw = [b.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for b in buffers]
    copy: Array = torch.cat(raw).numpy() if raw else np.zeros(0, np.uint8)
    return copy


def _load_weights(delta: Delta, parameters: Sequence[nn.Parameter]) -> None:
    expected = sum(p.numel() for p in parameters)
    if delta.weights.shape != (expected,):
        raise ValueError(
            f"a snapshot of {delta.weights.shape} for the {expected} parameters of '{delta.part}'"
        )
    start = 0
    for parameter in parameters:
        _copy(delta.weights[start : start + parameter.numel()], parameter)
        start += parameter.numel()


def _load_rows(weights: Array, rows: Array, table: nn.Parameter) -> None:
    values = weights.reshape(len(rows), -1)
    if values.shape[1] != table.shape[1] or len(rows) > len(table):
        raise ValueError(f"rows {values.shape} of a snapshot for word vectors {tuple(table.shape)}")
    if table.device.type == "cpu" and table.dtype == torch.float32:
        table.detach().numpy()[rows] = values
    else:
        at, new = (torch.from_numpy(np.array(part)).to(table.device) for part in (rows, values))
        table.index_copy_(0, at, new.to(table.dtype))


def _load_buffers(raw: Array, buffers: Sequence[torch.Tensor]) -> None:
    expected = sum(b.numel() * b.element_size() for b in buffers)
    if expected != len(raw):
        raise ValueError(f"a snapshot of {len(raw)} bytes for {expected} of buffers")
    start = 0
    for buffer in buffers:
        size = buffer.numel() * buffer.element_size()
        part = torch.from_numpy(np.array(raw[start : start + size]))
        buffer.copy_(part.view(buffer.dtype).view_as(buffer))
        start += size


def _copy(weights: Array, parameter: nn.Parameter) -> None:
    """Set a parameter to float32 [its size]."""
    # Ray hands out read-only views and torch wants writable memory, even to read: numpy does not.
    if parameter.device.type == "cpu" and parameter.dtype == torch.float32:
        np.copyto(parameter.detach().numpy(), weights.reshape(parameter.shape))
    else:
        parameter.copy_(torch.from_numpy(np.array(weights)).view_as(parameter))


def training_lengths(manifest: Manifest, batch_size: int) -> TrainingLengths | None:
    """How long the training sentences are; None where the data do not tell.

    Of passages the lengths of their sentences are not counted, and data of an early version do not
    say how lengths spread.
    """
    train = manifest.splits.get("train")
    if manifest.labels.kind == "sentence" or train is None or train.length_sd is None:
        return None
    means = (tokens / train.rows for tokens in train.tokens)
    return TrainingLengths(tuple(zip(means, train.length_sd, strict=True)), batch_size)


def build_models(
    config: RunConfig,
    labels: LabelSpec,
    sentences: int,
    vectors: Array,
    trainable: int,
    words: Sequence[str] = (),
    lengths: TrainingLengths | None = None,
) -> Models:
    """Fresh modules whose initial weights depend on the run's seed alone.

    Args:
        labels, sentences, vectors, trainable, lengths, words: see `build_classifier` and
            `build_policy`.

    Raises:
        ConfigError: see `build_classifier`, `build_policy` and `check_reads`.
    """
    check_reads(config.policy.reads, sentences)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(stream_key(config.seed, "initial weights"))
        classifier = build_classifier(
            config.model, labels, sentences, vectors, trainable, lengths, words or None
        )
        context = _context(config.policy, words)
        states = None if context is None else context.size
        size = input_size(config.policy.reads, classifier.embedding.size, states)
        backend = outer_backend(config.model)
        policy = build_policy(config.policy, size, config.model.activation, words, backend)
    return Models(classifier, policy, config.policy.reads, context)


def _context(policy: PolicyConfig, words: Sequence[str]) -> ContextReader | None:
    if policy.pretrained is None:
        return None
    return ContextReader(policy.pretrained, words)


def open_data(config: RunConfig) -> Prepared:
    """The data of a run, with the states of tokens that its policy reads.

    Raises:
        DataError: see `open_prepared` and `open_states`. StorageError: no answer from a URI.
        ConfigError: the encoder of the states cannot be used.
    """
    prepared = open_prepared(config.data)
    if config.policy.pretrained is None:
        return prepared
    digest = open_pretrained(config.policy.pretrained).digest
    return prepared.with_states(config.policy.pretrained, digest)


def build_prepared_models(config: RunConfig, prepared: Prepared) -> Models:
    """Fresh modules for a prepared dataset.

    Raises:
        ConfigError: see `build_models`.
    """
    manifest = prepared.manifest
    return build_models(
        config,
        manifest.labels,
        manifest.sentences,
        prepared.vectors(),
        prepared.vocabulary.trainable,
        prepared.vocabulary.words,
        training_lengths(manifest, config.batch_size),
    )


@contextmanager
def fixed_threads(count: int) -> Iterator[None]:
    """Run with `count` CPU threads, so that a result does not depend on who computes it."""
    before = torch.get_num_threads()
    if before != count:
        torch.set_num_threads(count)
    try:
        yield
    finally:
        if before != count:
            torch.set_num_threads(before)


@contextmanager
def inference(models: Models, threads: int, device: torch.device, precision: str) -> Iterator[None]:
    """Within it models are asked and do not learn: in evaluation mode, without gradients."""
    with (
        models.evaluating(),
        fixed_threads(threads),
        torch.inference_mode(),
        autocast(device, precision),
    ):
        yield


def autocast_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The dtype of matrix products, None for float32; `auto` is bfloat16 where that is faster."""
    lower = precision == "bfloat16" or (precision == "auto" and multiplies_bfloat16(device))
    return torch.bfloat16 if lower else None


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Autocast as the configuration's `precision` asks."""
    dtype = autocast_dtype(device, precision)
    return torch.autocast(device.type, dtype=dtype, enabled=dtype is not None)
