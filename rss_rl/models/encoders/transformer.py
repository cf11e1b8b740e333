"""A pretrained transformer that reads only the selected words.

Selected words (heads or dependents) are gathered before its first layer, so that time is
proportional to the share kept, and unselected words cannot reach the prediction.

Legend: M sentences, N tokens, R selected tokens of all sentences, H hidden size.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, cast

from pydantic import Field
from torch import Tensor, nn

from rss_rl.components import Options
from rss_rl.errors import ConfigError
from rss_rl.models.dropout import Dropout, batch_seed, drawing
from rss_rl.models.encoders.encoder import EncoderComponent, EncoderSetup
from rss_rl.ops.gated import union
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.pretrained.reader import Positions, WordReader, layers_of


class TransformerOptions(Options):
    """Options of a pretrained transformer."""

    pretrained: str
    """Folder of the model (config.json, model.safetensors, tokenizer.json), or its name on the
    Hugging Face hub.
    """
    learns: Literal["all", "last", "lora", "nothing"] = "all"
    """Which weights are trained: all; those of the last `last` layers; low-rank adapters (LoRA, Hu
    et al. 2022); or only the head. Frozen weights are neither published nor saved.
    """
    last: int = Field(default=2, ge=1)
    """Layers trained with learns=last."""
    rank: int = Field(default=8, ge=1)
    """Rank of the adapters of learns=lora."""
    rate: float = Field(default=0.05, gt=0)
    """Learning rate of its weights as a multiple of learner.supervised.learning_rate, which the
    head has.
    """
    positions: Positions = "closed"
    """closed: selected words become adjacent. kept: they keep their distances."""
    attention_dropout: float | None = Field(default=None, ge=0, lt=1)
    """Dropout of attention probabilities; null = that of the pretrained model. With 0, torch trains
    with fused attention on CPUs, too: long texts take less than half the time and memory.
    """


class TransformerEncoder(nn.Module):
    """Selected words to the pooled states of their pieces.

    Args:
        setup: with the words of the ids.

    Raises:
        ConfigError: the words are unknown, or it has no such layers.
    """

    reads_words = True

    def __init__(
        self, pretrained: Pretrained, setup: EncoderSetup, options: TransformerOptions
    ) -> None:
        super().__init__()
        if setup.words is None:
            raise ConfigError(
                "a transformer needs words, which these data lack", where="model.encoder"
            )
        model = pretrained.encoder(options.attention_dropout)
        _freeze(model, pretrained.name, options)
        self.reader = WordReader(pretrained, model, setup.words, options.positions)
        self.dropout = Dropout(setup.dropout)
        self.output_size = self.reader.size
        self.relative_rate = options.rate
        self.reads_unselected = options.positions == "kept"
        self._tokenizer = pretrained.tokenizer
        self._register_state_dict_hook(_without_frozen)  # type: ignore[no-untyped-call]
        self.register_load_state_dict_pre_hook(_with_frozen)  # type: ignore[no-untyped-call]

    def add_words(self, words: Sequence[str]) -> None:
        """See `WordEncoder`."""
        self.reader.table.add(words)

    def save(self, folder: Path) -> None:
        """See `SavedEncoder`; adapters are merged."""
        model = _without_adapters(copy.deepcopy(self.reader.model))
        model.save_pretrained(folder)  # type: ignore[operator]
        self._tokenizer.save_pretrained(folder)

    def forward(self, words: Tensor, valid: Tensor, selection: Tensor) -> Tensor:
        """See `WordEncoder`."""
        return self._read(words, valid & selection.any(1), None)

    def gated(self, words: Tensor, valid: Tensor, gates: Tensor) -> Tensor:
        """See `GatedEncoder`, of words; a token whose gates are 0 is not read."""
        joint = union(gates)  # [M, N]
        return self._read(words, valid & (joint > 0), joint)

    def _read(self, words: Tensor, kept: Tensor, gates: Tensor | None) -> Tensor:
        text, place = kept.nonzero(as_tuple=True)  # [R]
        with drawing(batch_seed() if self.training else None, cuda=True):
            vectors = self.reader.pooled(
                words[kept],
                text,
                len(words),
                place=place,
                gates=None if gates is None else gates[kept],
            )
        return cast(Tensor, self.dropout(vectors))


def _freeze(model: nn.Module, name: str, options: TransformerOptions) -> None:
    """Freeze all weights that the options do not train."""
    if options.learns == "all":
        return
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    if options.learns == "last":
        layers = layers_of(model)
        if layers is None:
            raise ConfigError(
                "has no list of its layers",
                where=name,
                remedy="Set model.encoder.options.learns to all, lora or nothing",
            )
        if options.last > len(layers):
            raise ConfigError(
                f"has {len(layers)} layers, and the last {options.last} are to learn",
                where=name,
                remedy="Lower model.encoder.options.last, or set learns to all",
            )
        for layer in layers[-options.last :]:
            for parameter in layer.parameters():
                parameter.requires_grad_(True)
    elif options.learns == "lora":
        _add_adapters(model, options.rank)


def _add_adapters(model: nn.Module, rank: int) -> None:
    try:
        from peft import LoraConfig, inject_adapter_in_model
    except ImportError as error:
        raise ConfigError(
            f"learns=lora needs the package peft ({error})",
            where="model.encoder.options.learns",
            remedy="Install it with `pip install 'rss-rl[transformers]'`",
        ) from error
    names = [name for name, part in model.named_modules() if isinstance(part, nn.Linear)]
    adapters = LoraConfig(r=rank, lora_alpha=2 * rank, target_modules=names, bias="none")
    inject_adapter_in_model(adapters, model)


def _without_adapters(model: nn.Module) -> nn.Module:
    """The same, its adapters added to the weights that they adapt."""
    adapted = {n: part for n, part in model.named_modules() if hasattr(part, "get_base_layer")}
    for name, part in adapted.items():
        part.merge()
        above, _, last = name.rpartition(".")
        setattr(model.get_submodule(above), last, part.get_base_layer())
    return model


def _without_frozen(module: nn.Module, state: dict[str, Any], prefix: str, local: Any) -> None:
    """Frozen weights are in the pretrained folder and are not saved."""
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            state.pop(f"{prefix}{name}", None)


def _with_frozen(module: nn.Module, state: Mapping[str, Any], prefix: str, *rest: Any) -> None:
    """Weights that were not saved stay as they are."""
    loaded = cast(dict[str, Any], state)
    for name, parameter in module.named_parameters():
        if not parameter.requires_grad:
            loaded.setdefault(f"{prefix}{name}", parameter.detach())


def _build(setup: EncoderSetup, options: TransformerOptions) -> TransformerEncoder:
    return TransformerEncoder(open_pretrained(options.pretrained), setup, options)


TRANSFORMER = EncoderComponent(
    name="transformer",
    help="A pretrained transformer over the pieces of the selected words.",
    build=_build,
    options=TransformerOptions,
    capabilities=frozenset({"gates", "kept_only"}),
    source="Devlin et al., NAACL 2019",
)
