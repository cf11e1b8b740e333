"""Subword vectors: a matrix and a tokenizer in a folder, as in model2vec and WordLlama.

`static:FOLDER`, or `static:PACKAGE` for those that an installed package contains. A word's vector
is the mean of its pieces' vectors.

Legend: V words of the vocabulary, P pieces of the tokenizer, e width.
"""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from safetensors import SafetensorError, safe_open

from rss_rl.data.vocabulary import SPECIAL_WORDS, Vocabulary
from rss_rl.errors import DataError
from rss_rl.types import Array

PREFIX = "static:"
PACKAGES = ("wordllama",)
"""Packages that are known to contain such a folder."""
_LARGEST_TOKENIZER = 1 << 26


class StaticFiles(NamedTuple):
    """A safetensors file with one matrix [P, e], called `tensor`, and the tokenizer's JSON file."""

    matrix: Path
    tensor: str
    tokenizer: Path


def is_static(path: Path) -> bool:
    """Whether a file of vectors is named as `static:...`."""
    return str(path).startswith(PREFIX)


def find_static(path: Path) -> StaticFiles:
    """The files of `static:FOLDER_OR_PACKAGE`; no code of the package is run.

    Raises:
        DataError: there is no such folder or package, or it does not have exactly one matrix and
            one tokenizer.
    """
    name = str(path).removeprefix(PREFIX)
    folder = Path(name).expanduser()
    if not folder.is_dir():
        folder = _package_folder(name)
    matrices = [
        (file, tensor) for file in sorted(folder.rglob("*.safetensors")) for tensor in _large(file)
    ]
    _check_one(folder, len(matrices), "matrices of vectors in safetensors files")
    with safe_open(matrices[0][0], framework="np") as tensors:
        others = {"weights", "mapping"} & set(tensors.keys())
        kind = tensors.get_slice(matrices[0][1]).get_dtype()
    if others or kind not in ("F16", "F32", "F64"):
        what = f"a tensor '{min(others)}'" if others else f"numbers of kind {kind}"
        raise DataError(
            f"has {what}, which is not read",
            where=str(matrices[0][0]),
            remedy="Save one matrix of float16 or float32 with a row for each piece",
        )
    tokenizers = [file for file in sorted(folder.rglob("*tokenizer*.json")) if _tokenizer(file)]
    _check_one(folder, len(tokenizers), "tokenizers (*tokenizer*.json)")
    return StaticFiles(*matrices[0], tokenizers[0])


def _check_one(folder: Path, found: int, what: str) -> None:
    if found != 1:
        raise DataError(
            f"has {found or 'no'} {what}, where one is expected",
            where=str(folder),
            remedy="Name the folder of a model2vec or WordLlama model",
        )


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
    words = list(vocabulary.words[special:])
    unknown = tokenizer.token_to_id(getattr(tokenizer.model, "unk_token", None) or "<unk>")
    # With or without a space before it, whichever gives fewer pieces.
    forms = [
        tokenizer.encode_batch([f"{before}{word}" for word in words], add_special_tokens=False)
        for before in ("", " ")
    ]
    vectors = np.zeros((len(vocabulary), matrix.shape[1]), np.float32)
    found = np.zeros(len(vocabulary), bool)
    for number, both in enumerate(zip(*forms, strict=True), start=special):
        pieces = min((form.ids for form in both), key=len)
        pieces = [piece for piece in pieces if piece != unknown]
        if pieces:
            vectors[number] = matrix[pieces].mean(0)
            found[number] = True
    if not found.any():
        raise DataError(
            "has no vector for any word of the data",
            where=str(path),
            remedy="Check the model and its language",
        )
    return vectors, found, len(matrix)


def _package_folder(name: str) -> Path:
    spec = importlib.util.find_spec(name) if name.isidentifier() else None
    folders = list(spec.submodule_search_locations or ()) if spec is not None else []
    if not folders:
        raise DataError(
            "there is no such folder or installed package",
            where=f"{PREFIX}{name}",
            remedy="Give the folder of a model2vec model, or install one of:"
            f" {', '.join(PACKAGES)}",
        )
    return Path(folders[0])


def _large(file: Path) -> list[str]:
    """Names of the matrices in a safetensors file."""
    try:
        with safe_open(file, framework="np") as tensors:
            names = list(tensors.keys())
            return [name for name in names if len(tensors.get_slice(name).get_shape()) == 2]
    except (SafetensorError, OSError) as error:
        raise DataError(
            f"cannot be read ({error})", where=str(file), remedy="Fetch the model again"
        ) from error


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
