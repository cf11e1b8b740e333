"""Word vectors from pretrained models: subword matrices (`static:`) and encoders (`encoder:`).

`static:FOLDER`, or `static:PACKAGE` for those that an installed package contains, is a matrix and a
tokenizer, as in model2vec and WordLlama. A word's vector is the mean of its pieces' vectors.

`encoder:FOLDER_OR_NAME` is a transformer that reads each word alone. No word is without a vector,
and they cost one reading of the vocabulary. The principal components with the largest variance are
kept (the idea of model2vec, Minish Lab 2024, with whole words in place of pieces).

Legend: V words of the vocabulary, P pieces of the tokenizer, H hidden size of the encoder, e width.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.errors import DataError
from rss_rl.types import LONGEST_WORD, Array

STATIC, ENCODER = "static:", "encoder:"
PACKAGES = ("wordllama",)
"""Packages that are known to contain a subword matrix."""
WIDTH = 256
"""Principal components that are kept, at most."""
_SPREAD = 1 / 3
"""Standard deviation of the components, near that of GloVe's vectors."""
_LARGEST_TOKENIZER = 1 << 26


class StaticFiles(NamedTuple):
    """A safetensors file with one matrix [P, e], called `tensor`, and the tokenizer's JSON file."""

    matrix: Path
    tensor: str
    tokenizer: Path


def is_static(path: Path) -> bool:
    """Whether vectors are named as `static:...`."""
    return str(path).startswith(STATIC)


def is_encoder(path: Path) -> bool:
    """Whether vectors are named as `encoder:...`."""
    return str(path).startswith(ENCODER)


def names_a_file(path: Path) -> bool:
    """Whether vectors are named by their file, not by a package or an encoder."""
    return not (is_static(path) or is_encoder(path))


def find_static(path: Path) -> StaticFiles:
    """The files of `static:FOLDER_OR_PACKAGE`; no code of the package is run.

    Raises:
        DataError: there is no such folder or package, or it does not have exactly one matrix and
            one tokenizer.
    """
    name = str(path).removeprefix(STATIC)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        spec = importlib.util.find_spec(name) if name.isidentifier() else None
        places = list(spec.submodule_search_locations or ()) if spec is not None else []
        if not places:
            raise DataError(
                "there is no such folder or installed package",
                where=str(path),
                remedy="Give the folder of a model2vec model, or install one of:"
                f" {', '.join(PACKAGES)}",
            )
        folder = Path(places[0])
    files = sorted(folder.rglob("*.safetensors"))
    matrices = [(file, tensor) for file in files for tensor in _matrices(file)]
    tokenizers = [file for file in sorted(folder.rglob("*tokenizer*.json")) if _tokenizer(file)]
    if len(matrices) != 1 or len(tokenizers) != 1:
        raise DataError(
            f"has {len(matrices)} matrices of floating point numbers in safetensors files without"
            f" weights and mappings, and {len(tokenizers)} tokenizers (*tokenizer*.json), where"
            " one of each is expected",
            where=str(folder),
            remedy="Name the folder of a model2vec or WordLlama model",
        )
    return StaticFiles(*matrices[0], tokenizers[0])


def static_vectors(path: Path, vocabulary: Vocabulary) -> tuple[Array, Array, int]:
    """Vectors float32 [V, e], which words have one bool [V], and P.

    Raises:
        DataError: see `find_static`; or the tokenizer has more pieces than the matrix has rows.
    """
    files = find_static(path)
    with safe_open(files.matrix, framework="np") as tensors:
        matrix = tensors.get_tensor(files.tensor).astype(np.float32)
    tokenizer = _tokenizer(files.tokenizer)
    if tokenizer.get_vocab_size() > len(matrix) or not np.isfinite(matrix).all():
        raise DataError(
            f"has {len(matrix):,} finite rows at most, but its tokenizer has"
            f" {tokenizer.get_vocab_size():,} pieces",
            where=str(files.matrix),
            remedy="Give the matrix and the tokenizer of one model",
        )
    special = len(SPECIAL_WORDS)
    words = [word[:LONGEST_WORD] for word in vocabulary.words[special:]]
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "<unk>")
    # With or without a space before it, whichever gives fewer pieces.
    forms = [
        tokenizer.encode_batch([f"{before}{word}" for word in words], add_special_tokens=False)
        for before in ("", " ")
    ]
    vectors = np.zeros((len(vocabulary), matrix.shape[1]), np.float32)
    known = np.zeros(len(vocabulary), bool)
    for number, both in enumerate(zip(*forms, strict=True), start=special):
        pieces = min((form.ids for form in both), key=len)
        pieces = [piece for piece in pieces if piece != unknown]
        if pieces:
            vectors[number] = matrix[pieces].mean(0)
            known[number] = True
    return vectors, known, len(matrix)


def _matrices(file: Path) -> list[str]:
    """Names of the matrices in a safetensors file whose rows alone are the vectors of pieces."""
    try:
        with safe_open(file, framework="np") as tensors:
            names = list(tensors.keys())
            parts = [(name, tensors.get_slice(name)) for name in names]
            kinds = {name: (len(part.get_shape()), part.get_dtype()) for name, part in parts}
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"cannot be read ({error})", where=str(file), remedy="Fetch the model again"
        ) from error
    if {"weights", "mapping"} & set(names):
        return []
    return [name for name in names if kinds[name] in ((2, "F16"), (2, "F32"), (2, "F64"))]


def _tokenizer(file: Path) -> Any:
    """The tokenizer of a file; None where it is another kind of JSON file."""
    try:
        from tokenizers import Tokenizer
    except ImportError as error:
        raise DataError(
            f"subword vectors need the package tokenizers ({error})",
            where=str(file),
            remedy="Install it with `pip install 'rss-rl[transformers]'`",
        ) from error
    if file.stat().st_size > _LARGEST_TOKENIZER:
        return None
    try:
        tokenizer = Tokenizer.from_file(str(file))
    except Exception:  # the library raises no class of its own
        return None
    tokenizer.no_padding()
    tokenizer.no_truncation()
    return tokenizer


def find_encoder(path: Path) -> tuple[Path, str]:
    """The folder of `encoder:FOLDER_OR_NAME`, and the SHA-256 of what determines its output.

    Raises:
        ConfigError: there is no such transformer, or it cannot be used.
    """
    from rss_rl.pretrained.words_alone import pretrained_source

    folder, digest = pretrained_source(str(path).removeprefix(ENCODER))
    return Path(folder), digest


def encoder_vectors(
    path: Path, vocabulary: Vocabulary, progress: Callable[[int], None]
) -> tuple[Array, Array, int]:
    """Vectors float32 [V, e], which words have one bool [V], and how many these are.

    Raises:
        ConfigError: see `find_encoder`.
    """
    from rss_rl.pretrained.words_alone import words_alone

    states = words_alone(str(path).removeprefix(ENCODER), vocabulary.words, progress)
    special = len(SPECIAL_WORDS)
    known = np.arange(len(vocabulary)) >= special
    read = principal_components(states[special:], WIDTH)
    vectors = np.zeros((len(vocabulary), read.shape[1]), np.float32)
    vectors[special:] = read * (_SPREAD / max(float(read.std()), 1e-12))
    return vectors, known, int(known.sum())


def principal_components(rows: Array, width: int) -> Array:
    """Rows [V, H] in the basis of their covariance's leading eigenvectors, [V, min(width, H, V)].

    The sign of a component is that of its largest entry in the basis, so that it is the same
    whichever library computes it.
    """
    centred = rows.astype(np.float64) - rows.mean(0, dtype=np.float64)
    _, basis = np.linalg.eigh(centred.T @ centred)  # ascending
    basis = basis[:, ::-1][:, : min(width, *rows.shape)]
    largest = np.abs(basis).argmax(0)
    basis = basis * np.sign(basis[largest, np.arange(basis.shape[1])])
    components: Array = (centred @ basis).astype(np.float32)
    return components
