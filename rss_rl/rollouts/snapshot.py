"""Snapshots: classifier and policy for samplers and evaluators, published part by part.

A snapshot holds those `PARTS` that changed since the previous one; of word vectors only the
changed rows, if they are fewer. Fixed word vectors, a non-persistent buffer, are never sent,
as every process reads them from the data. Persistent buffers are sent whole. If word vectors are
averaged by row (`RowAverage`), rows are sent as last written, with the weights they average and the
clock, and the reader brings them up to date.

Legend: P numbers of a part, its parameters and what lies between them, V trainable word vectors,
R rows of them, E embedding size.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import nn

from rss_rl.config import Reads, RunConfig
from rss_rl.data.manifest import Manifest
from rss_rl.data.store import Prepared, open_prepared
from rss_rl.errors import CheckpointError
from rss_rl.models.build import build_classifier
from rss_rl.models.dropout import drawing, evaluating
from rss_rl.models.embedding import RowAverage, WordEmbedding
from rss_rl.models.encoders.protocol import TrainingLengths
from rss_rl.models.inputs import TensorBatch
from rss_rl.models.protocol import Classifier
from rss_rl.ops.matmul import products_in
from rss_rl.policies.build import build_policy
from rss_rl.policies.distributions import SelectionDistribution
from rss_rl.policies.inputs import check_reads, input_size, policy_inputs
from rss_rl.policies.protocol import Policy
from rss_rl.pretrained.context import ContextReader
from rss_rl.pretrained.folder import open_pretrained
from rss_rl.rollouts.device import multiplies_bfloat16
from rss_rl.rollouts.published import CLASSIFIER, PARTS, POLICY, WORDS, Delta, Snapshot
from rss_rl.seeding import stream_key
from rss_rl.types import Array, LabelSpec

_ALIGNED = 16
"""Parameters begin at multiples of so many float32 numbers, 64 bytes."""


class Models(NamedTuple):
    """Classifier and policy of a run, and what the policy reads."""

    classifier: Classifier
    policy: Policy
    reads: Reads = "sentence"
    context: ContextReader | None = None

    def policy_inputs(self, batch: TensorBatch) -> list[torch.Tensor]:
        """What the policy reads, S x [B, N_s, E]; see `policy_inputs`.

        A contextual policy's states are computed if the batch has none.
        """
        tokens, valid, states = batch.tokens, batch.valid, batch.states
        if self.context is not None and states is None:
            states = [self.context.states(*slot) for slot in zip(tokens, valid, strict=True)]
        embedding = self.classifier.embedding
        return policy_inputs(self.policy, embedding, tokens, valid, self.reads, states)

    def distributions(self, batch: TensorBatch) -> list[SelectionDistribution]:
        """What the policy returns, one for each of S sentences."""
        pairs = zip(self.policy_inputs(batch), batch.valid, strict=True)
        return [self.policy(*pair) for pair in pairs]

    def evaluating(self) -> AbstractContextManager[None]:
        """Both in evaluation mode within; on exit, each module returns to its previous mode."""
        return evaluating(self.classifier, self.policy)

    @property
    def modules(self) -> dict[str, nn.Module]:
        """Both modules by their names in checkpoints."""
        return {"classifier": self.classifier, "policy": self.policy}

    def parameters(self) -> list[nn.Parameter]:
        """All parameters."""
        return [*self.classifier.parameters(), *self.policy.parameters()]

    def parts(self) -> dict[str, list[nn.Parameter]]:
        """The trainable parameters of each of `PARTS`, in the order of a delta."""
        words = self.classifier.embedding.trainable
        others = [p for p in _trainable(self.classifier) if p is not words]
        return {CLASSIFIER: others, WORDS: [words], POLICY: _trainable(self.policy)}

    def publish(self, version: int) -> Snapshot:
        """A snapshot of the whole model."""
        return Publisher(self).publish(version, whole=True)

    def load(self, snapshot: Snapshot) -> None:
        """Copy the deltas of a snapshot into the modules.

        Raises:
            ValueError: it was made from other modules.
        """
        Parts(self).load(snapshot)


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

    def __len__(self) -> int:
        return len(self._all)

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
        if (whole := self.resident()) is not self._host:
            self._host.copy_(whole)
        values: Array = self._host.numpy()
        return values

    def write(self, weights: Array | torch.Tensor) -> None:
        """Set them to float32 [P]; an array may be read-only."""
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


class Parts:
    """The trainable parameters and persistent buffers of each of `PARTS`, found once.

    Walking a transformer's modules takes longer than copying its trainable parameters.

    Args:
        models: on their final device; their parameters must not be replaced afterwards.
    """

    def __init__(self, models: Models) -> None:
        self.parameters = models.parts()
        self._joined = {part: Joined(own) for part, own in self.parameters.items()}
        self._embedding = models.classifier.embedding
        self._slots = {part: _persistent(module) for part, module in models.modules.items()}

    def buffers(self, part: str) -> list[torch.Tensor]:
        """The current buffers of a part, in the order of a delta."""
        return [held[name] for held, name in self._slots.get(part, [])]

    def weights(self, part: str, *, resident: bool) -> Array | torch.Tensor:
        """All parameters of a part, see `Joined`."""
        joined = self._joined[part]
        return joined.resident() if resident else joined.read()

    def load(self, snapshot: Snapshot) -> None:
        """See `Models.load`."""
        with torch.no_grad():
            for delta in snapshot.deltas:
                joined = self._joined[delta.part]
                if delta.rows is None and delta.weights.shape != (len(joined),):
                    raise ValueError(
                        f"a snapshot of {delta.weights.shape} for the {len(joined)} numbers of"
                        f" '{delta.part}'"
                    )
                if delta.rows is None:
                    joined.write(delta.weights)
                else:
                    _load_rows(
                        np.asarray(delta.weights), delta.rows, self.parameters[delta.part][0]
                    )
                if delta.part == WORDS:
                    _load_average(delta, self._embedding)
                _load_buffers(delta.buffers, self.buffers(delta.part))


class Publisher:
    """Makes snapshots of the changes since the previous one.

    `note` records which parameters change; buffers are compared.

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
        self._buffers: dict[str, bytes] = {}

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

    def publish(self, version: int, *, whole: bool) -> Snapshot:
        """A snapshot of the changes since the last call, or of the whole model if `whole`."""
        if whole:
            self.note_all()
        deltas = []
        self._parts = self._parts or Parts(self._models)
        words = self._parts.parameters[WORDS][0].detach()
        for part in PARTS:
            raw = _bytes_of(self._parts.buffers(part))
            same = self._buffers.get(part) == raw.tobytes()
            rows = self._changed_rows() if part == WORDS and part not in self._changed else None
            average = self._models.classifier.embedding.average if part == WORDS else None
            if rows is not None:
                values, no_buffers = _rows_of(words, rows), np.zeros(0, np.uint8)
                delta = Delta(WORDS, values, no_buffers, rows.cpu().numpy())
                deltas.append(_with_average(delta, average))
                self._sent += len(rows)
            elif part in self._changed or not same:
                weights = self._parts.weights(part, resident=self._resident)
                deltas.append(_with_average(Delta(part, weights, raw), average))
                self._buffers[part] = raw.tobytes()
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


def _trainable(module: nn.Module) -> list[nn.Parameter]:
    """Trainable parameters; frozen ones are equal in every process and are not sent."""
    return [parameter for parameter in module.parameters() if parameter.requires_grad]


def _persistent(module: nn.Module) -> list[tuple[dict[str, Any], str]]:
    """The dict and key of each persistent buffer, as the buffer itself may be replaced.

    Without `state_dict`, which would bring all averaged word vectors up to date.
    """
    return [
        (part._buffers, name)
        for part in module.modules()
        for name, buffer in part._buffers.items()
        if buffer is not None and name not in part._non_persistent_buffers_set
    ]


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


def _bytes_of(buffers: Sequence[torch.Tensor]) -> Array:
    """A copy, uint8."""
    raw = [b.detach().cpu().contiguous().reshape(-1).view(torch.uint8) for b in buffers]
    copy: Array = torch.cat(raw).numpy() if raw else np.zeros(0, np.uint8)
    return copy


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


def select_prefix(
    tensors: Mapping[str, Array], prefix: str, device: torch.device
) -> dict[str, torch.Tensor]:
    """The tensors whose name begins with `prefix`, without it, as torch tensors."""
    return {
        name.removeprefix(prefix): torch.from_numpy(np.array(value)).to(device)
        for name, value in tensors.items()
        if name.startswith(prefix)
    }


def load_weights(models: Models, tensors: Mapping[str, Array], device: torch.device) -> None:
    """Load `classifier/...` and `policy/...` into the modules.

    Raises:
        CheckpointError: a name, shape or dtype does not fit, as with another configuration; or a
            weight is NaN or infinite.
    """
    for name, module in models.modules.items():
        found = select_prefix(tensors, f"{name}/", device)
        try:
            for key, own in module.state_dict().items():
                if key in found and found[key].dtype != own.dtype:  # would be converted silently
                    raise RuntimeError(f"{key} is {found[key].dtype}, not {own.dtype}")
            weights = dict(module.named_parameters())
            for key, value in found.items():
                if key in weights and not bool(torch.isfinite(value).all()):
                    raise RuntimeError(f"{key} has NaN or infinite weights")
            module.load_state_dict(found)
        except RuntimeError as error:
            raise CheckpointError(
                f"the {name}'s weights do not fit: {str(error).splitlines()[-1].strip()}",
                remedy="Use the configuration and data the run was started with, and unchanged"
                " files",
            ) from error


def training_lengths(manifest: Manifest, batch_size: int) -> TrainingLengths | None:
    """Statistics of the training sentences' lengths; None if the data lack them.

    Passages have no statistics by sentence.
    """
    train = manifest.splits.get("train")
    if manifest.labels.kind == "sentence" or train is None:
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
    """New modules whose initial weights depend only on the run's seed.

    Args:
        labels, sentences, vectors, trainable, lengths, words: see `build_classifier` and
            `build_policy`.

    Raises:
        ConfigError: see `build_classifier`, `build_policy` and `check_reads`.
    """
    check_reads(config.policy.reads, sentences)
    with drawing(stream_key(config.seed, "initial weights")):
        classifier = build_classifier(
            config.model, labels, sentences, vectors, trainable, lengths, words or None
        )
        name, how = config.policy.pretrained, (config.policy.layers, config.policy.window)
        context = None if name is None else ContextReader(name, words, *how)
        states = None if context is None else context.size
        size = input_size(config.policy.reads, classifier.embedding.size, states)
        policy = build_policy(config.policy, size, config.model.activation, words)
    return Models(classifier, policy, config.policy.reads, context)


def open_data(config: RunConfig) -> Prepared:
    """The data of a run, with the states of tokens that its policy reads.

    Raises:
        DataError: see `open_prepared` and `open_states`. StorageError: a URI does not respond.
        ConfigError: the encoder of the states cannot be used.
    """
    prepared = open_prepared(config.data)
    pretrained = config.policy.pretrained
    if pretrained is None:
        return prepared
    digest = open_pretrained(pretrained).digest
    return prepared.with_states(pretrained, digest, config.policy.layers, config.policy.window)


def build_prepared_models(config: RunConfig, prepared: Prepared) -> Models:
    """New modules for a prepared dataset.

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
    """Run with `count` CPU threads, so that results do not depend on the process."""
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
    """Within it, models are in evaluation mode, without gradients, with autocast as configured."""
    with (
        models.evaluating(),
        fixed_threads(threads),
        torch.inference_mode(),
        autocast(device, precision),
    ):
        yield


def autocast_dtype(device: torch.device, precision: str) -> torch.dtype | None:
    """The dtype of matrix products, None for float32; `auto`: bfloat16 if the device has it."""
    lower = precision == "bfloat16" or (precision == "auto" and multiplies_bfloat16(device))
    return torch.bfloat16 if lower else None


def autocast(device: torch.device, precision: str) -> torch.autocast:
    """Autocast for the configured `precision`."""
    return products_in(autocast_dtype(device, precision), device)
