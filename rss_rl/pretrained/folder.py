"""A pretrained transformer on disk: opened without running code from it, or refused with a reason.

A folder in the format of the `transformers` library holds config.json, tokenizer.json and weights
as safetensors. Pickled weights are refused, as is code in a folder.
"""

from __future__ import annotations

import copy
import hashlib
import json
import math
import os
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, lru_cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, cast

import torch
from safetensors import safe_open
from torch import nn

from rss_rl.durable import file_sha256
from rss_rl.errors import ConfigError

_CONFIG, _TOKENIZER, _ADAPTER = "config.json", "tokenizer.json", "adapter_config.json"
_WEIGHTS, _INDEX = "model.safetensors", "model.safetensors.index.json"
_SMALL = "sentence-transformers/all-MiniLM-L6-v2"
_PATTERNS = [_CONFIG, "*.safetensors", _INDEX, "tokenizer*", "vocab*", "merges*", "special*"]
_PLAIN = frozenset({".json", ".safetensors", ".txt"})
"""Suffixes of formats that cannot contain executable code."""
_INSTALL = "Install it with `pip install 'rss-rl[transformers]'`"
_ENCODER_REMEDY = (
    "Name an encoder such as BERT, RoBERTa, DeBERTa, ELECTRA or ModernBERT, saved by"
    " save_pretrained with its tokenizer"
)
_TOGETHER = "Save model and configuration together, by save_pretrained"
_SIZES = (("hidden_size", 1, 1 << 16), ("num_hidden_layers", 0, 1000))
"""Of a configuration: key, least and most."""
_JSON_BYTES = 1 << 28
"""Parsing takes many times their size in memory."""
_LONGER = 1000
"""How many times longer a tokenizer's normalizer may make a text."""


@dataclass(frozen=True)
class Pretrained:
    """A folder with all its files.

    name    as given
    folder  its path
    """

    name: str
    folder: Path

    @cached_property
    def config(self) -> Any:
        """The library's configuration, such as a `BertConfig`.

        Raises:
            ConfigError: it is damaged, or its sizes are those of no model.
        """
        with blamed_on(self.name, "its config.json cannot be used"):
            config = _library().AutoConfig.from_pretrained(self.folder, trust_remote_code=False)
        for key, least, most in _SIZES:
            if not least <= (size := getattr(config, key, least)) <= most:
                raise ConfigError(
                    f"its config.json has {key}={size}, not {least:,} to {most:,}",
                    where=self.name,
                    remedy=_ENCODER_REMEDY,
                )
        parts = (config, *(getattr(config, part, None) for part in config.sub_configs))
        for attention in (getattr(part, "_attn_implementation", None) for part in parts):
            if attention not in (None, "eager", "sdpa"):
                raise ConfigError(
                    f"its config.json names the attention {attention!r:.100}, which may be code",
                    where=self.name,
                    remedy="Take attn_implementation out of it",
                )
        return config

    @cached_property
    def tokenizer(self) -> Any:
        """The library's fast tokenizer.

        Raises:
            ConfigError: there is none, or it is damaged.
        """
        with blamed_on(self.name, "its tokenizer cannot be used"):
            tokenizer = _library().AutoTokenizer.from_pretrained(
                self.folder, use_fast=True, trust_remote_code=False
            )
        if not getattr(tokenizer, "is_fast", False):
            raise ConfigError(
                "has no fast tokenizer",
                where=self.name,
                remedy="Save it with tokenizer.json, as save_pretrained of a fast tokenizer does",
            )
        return tokenizer

    @cached_property
    def digest(self) -> str:
        """SHA-256 of what determines its output: configuration, tokenizer and weights."""
        kinds = (_CONFIG, "*tokenizer*.json", "special_tokens_map.json", "*.safetensors", _INDEX)
        files = sorted({path for kind in kinds for path in self.folder.glob(kind)})
        sums = [f"{path.name} {file_sha256(path)}" for path in files]
        return hashlib.sha256("".join(sums).encode()).hexdigest()

    @property
    def longest(self) -> int:
        """Maximum length in pieces, special ones included."""
        limits = [getattr(self.config, "max_position_embeddings", 0) - self.first_position]
        limits.append(int(min(self.tokenizer.model_max_length, 1 << 20)))
        return min(limit for limit in limits if limit > 0)

    @property
    def first_position(self) -> int:
        """Number of a text's first position: RoBERTa and similar models skip those of padding."""
        padded = getattr(self.config, "model_type", "") in _PADDED_POSITIONS
        return int(self.config.pad_token_id) + 1 if padded else 0

    def encoder(self, attention_dropout: float | None = None) -> nn.Module:
        """The encoder with its weights, in training mode, without its pooler.

        Args:
            attention_dropout: of attention probabilities; None = as in its configuration.

        Raises:
            ConfigError: it is not an encoder, its weights do not fit, or it has no such dropout.
        """
        self._refuse_decoders()
        config = self.config
        if attention_dropout is not None:
            names = [name for name in _ATTENTION_DROPOUT if hasattr(config, name)]
            if not names:
                raise ConfigError(
                    "its config.json has no dropout of attention that could be set",
                    where=self.name,
                    remedy="Leave model.encoder.options.attention_dropout unset",
                )
            config = copy.deepcopy(config)
            config.update(dict.fromkeys(names, attention_dropout))
        model = self._model(_library().AutoModel, config)
        if getattr(model, "pooler", None) is not None:
            setattr(model, "pooler", None)  # noqa: B010 - torch types no removal
        return model.train()

    def classifier(self) -> nn.Module:
        """The text classifier with its weights, in evaluation mode.

        Raises:
            ConfigError: it is not a text classifier, or its weights do not fit.
        """
        kinds = getattr(self.config, "architectures", None) or []
        if not any(kind.endswith("ForSequenceClassification") for kind in kinds):
            raise ConfigError(
                f"is not a text classifier but {' or '.join(kinds) or 'of unknown architecture'}",
                where=self.name,
                remedy="Name a folder that AutoModelForSequenceClassification was saved to",
            )
        return self._model(_library().AutoModelForSequenceClassification, self.config).eval()

    def _refuse_decoders(self) -> None:
        config, kinds = self.config, _library().models.auto.modeling_auto
        kind = config.model_type
        causal = (
            kind in kinds.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES
            and kind not in kinds.MODEL_FOR_MASKED_LM_MAPPING_NAMES
        )
        if causal or any(
            getattr(config, name, False) for name in ("is_encoder_decoder", "is_decoder")
        ):
            raise ConfigError("is not an encoder", where=self.name, remedy=_ENCODER_REMEDY)

    def _model(self, kind: Any, config: Any) -> nn.Module:
        stored = sum(path.stat().st_size for path in self.folder.glob("*.safetensors"))
        only_counted = torch.empty(0).device.type == "meta"
        with blamed_on(self.name, "its weights cannot be used"):
            with torch.device("meta"):
                counted = cast(nn.Module, kind.from_config(config))
            if (described := sum(p.numel() for p in counted.parameters())) > 2 * stored:
                raise ConfigError(
                    f"its config.json describes {described:,} weights, and its files have"
                    f" {stored:,} bytes",
                    where=self.name,
                    remedy=_TOGETHER,
                )
            if only_counted:
                return counted
            model, report = kind.from_pretrained(
                self.folder,
                config=config,
                use_safetensors=True,
                trust_remote_code=False,
                dtype=torch.float32,
                ignore_mismatched_sizes=True,  # reported below
                output_loading_info=True,
            )
        lacking = [f"{key} is missing" for key in report["missing_keys"] if "pooler" not in key]
        lacking += [
            f"{key} is of shape {tuple(stored_shape)}, not {tuple(shape)}"
            for key, stored_shape, shape in report["mismatched_keys"]
        ]
        if lacking:
            raise ConfigError(
                f"its weights do not fit its config.json in {len(lacking)} tensors, such as"
                f" {min(lacking)}",
                where=self.name,
                remedy=_TOGETHER,
            )
        return cast(nn.Module, model)


_ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")
"""How the library's configurations call it."""
_PADDED_POSITIONS = frozenset({"roberta", "xlm-roberta", "camembert", "longformer", "mpnet"})


def open_pretrained(name: str) -> Pretrained:
    """The transformer of a folder, or of a name on the Hugging Face hub, downloaded if needed.

    Raises:
        ConfigError: the libraries are not installed, there is no such folder or name, or it lacks
            a file.
    """
    _library()
    folder = Path(name).expanduser()
    if os.path.isdir(folder):
        return _checked(name, folder.resolve())
    if name.count("/") > 1 or name.startswith((".", "~", os.sep)) or not name.strip():
        raise ConfigError(
            "there is no such folder",
            where=name,
            remedy="Give the folder of a pretrained transformer, or its name on the hub",
        )
    return _checked(name, _fetched(name))


def plain_files(folder: Path) -> list[Path]:
    """The files of a folder that a copy of it needs: no code, no pickled weights."""
    return sorted(path for path in folder.iterdir() if path.is_file() and is_plain(path.name))


def is_plain(name: str) -> bool:
    """Whether a file of this name is one that a copy of a folder has."""
    return Path(name).suffix in _PLAIN and not set(name) & set("/\\\0")


def _checked(name: str, folder: Path) -> Pretrained:
    for path in sorted(folder.iterdir()):
        if path.exists() and not (path.is_file() or path.is_dir()):
            what = f"{path.name} is no regular file"
        elif path.suffix == ".json" and path.stat().st_size > _JSON_BYTES:
            what = f"{path.name} has more than {_JSON_BYTES:,} bytes"
        else:
            continue
        raise ConfigError(what, where=name, remedy="Remove it, or save the model again")
    if not (folder / _CONFIG).is_file():
        raise ConfigError(
            f"has no {_CONFIG}", where=name, remedy="Name a folder that save_pretrained wrote"
        )
    if not any((folder / weights).is_file() for weights in (_WEIGHTS, _INDEX)):
        pickled = any(folder.glob("*.bin")) or any(folder.glob("*.pt"))
        raise ConfigError(
            "has its weights only in pickle form, which can run code when they are loaded"
            if pickled
            else "has no weights (model.safetensors)",
            where=name,
            remedy="Save them again with save_pretrained(..., safe_serialization=True)",
        )
    if (folder / _ADAPTER).exists():
        raise ConfigError(
            f"has an adapter, {_ADAPTER}, which may name other models and pickled weights",
            where=name,
            remedy="Merge it (merge_and_unload) and save the model again",
        )
    _check_index(name, folder)
    for path in folder.glob("*.safetensors"):
        with _whole(name, path, "file of weights"), safe_open(path, "np"):
            pass  # its header gives its length
    if not (folder / _TOKENIZER).is_file():
        raise ConfigError(
            f"has no {_TOKENIZER}",
            where=name,
            remedy="Save its fast tokenizer next to the model, by save_pretrained",
        )
    with _whole(name, folder / _TOKENIZER, "tokenizer"):
        normalizer = json.loads((folder / _TOKENIZER).read_bytes())["normalizer"]
    if (longer := _growth(normalizer)) > _LONGER:
        raise ConfigError(
            f"its normalizer makes texts up to {longer:.0f} times as long",
            where=name,
            remedy="Save it without the normalizer's replacements",
        )
    return Pretrained(name, folder)


def _growth(normalizer: Any) -> float:
    """How many times longer the replacements of a normalizer can make a text."""
    if not isinstance(normalizer, dict):
        return 1.0
    if normalizer.get("type") == "Replace":
        replaced = normalizer["pattern"].get("String", "?")  # a pattern may match one character
        return max(1.0, len(normalizer["content"]) / max(1, len(replaced)))
    return math.prod(map(_growth, normalizer.get("normalizers", ())))


def _check_index(name: str, folder: Path) -> None:
    """Refuse an index of weights that names anything but safetensors files of its folder.

    The library would load others as pickles, which can run code, or from another folder.
    """
    if not (folder / _INDEX).is_file():
        return
    with _whole(name, folder / _INDEX, "index of weights"):
        parts = set(json.loads((folder / _INDEX).read_bytes())["weight_map"].values())
    for part in sorted(map(str, parts)):
        inside = Path(part).name == part and part.endswith(".safetensors")
        if not inside or not (folder / part).is_file():
            raise ConfigError(
                f"its {_INDEX} names '{part:.100}', which is no safetensors file of the folder",
                where=name,
                remedy="Save it again with save_pretrained(..., safe_serialization=True)",
            )


@contextmanager
def _whole(name: str, path: Path, what: str) -> Iterator[None]:
    """Refuse a file that cannot be read as truncated or of another kind."""
    try:
        yield
    except Exception as error:  # the libraries raise nothing narrower
        raise ConfigError(
            f"{path.name} is not a complete {what} ({error})",
            where=name,
            remedy="Save, copy or download it again",
        ) from error


@lru_cache(maxsize=8)
def _fetched(name: str) -> Path:
    """The folder of a name on the hub: the cached copy, or a new download."""
    from huggingface_hub import snapshot_download

    arguments: dict[str, Any] = {"repo_id": name, "allow_patterns": _PATTERNS}
    try:
        return Path(snapshot_download(**arguments, local_files_only=True))
    except Exception:  # not cached; the library raises many types for that
        try:
            return Path(snapshot_download(**arguments))
        except Exception as error:
            raise ConfigError(
                "is not a local folder and cannot be downloaded from the hub"
                f" ({str(error).strip().splitlines()[0] if str(error).strip() else error!r:.200})",
                where=name,
                remedy="Check the name and the network, or give a folder that has the model",
            ) from error


def cached_transformer() -> str | None:
    """The small transformer of the documents, if the hub's cache on this machine has it."""
    if any(find_spec(name) is None for name in ("transformers", "huggingface_hub")):
        return None
    from huggingface_hub import try_to_load_from_cache

    return _SMALL if isinstance(try_to_load_from_cache(_SMALL, _WEIGHTS), str) else None


@contextmanager
def blamed_on(name: str, what: str) -> Iterator[None]:
    """Turn whatever the library raises into an error that names the folder."""
    try:
        yield
    except ConfigError:
        raise
    except Exception as error:
        reason = (str(error).strip().splitlines() or [type(error).__name__])[0]
        raise ConfigError(f"{what} ({reason:.300})", where=name, remedy=_ENCODER_REMEDY) from error


@lru_cache(maxsize=1)
def _library() -> Any:
    """The `transformers` library, without its output."""
    try:
        import transformers
    except ImportError as error:
        raise ConfigError(
            f"a pretrained transformer needs the package transformers ({error})", remedy=_INSTALL
        ) from error
    transformers.utils.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    return transformers
