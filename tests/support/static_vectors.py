"""Small subword vectors in the form of model2vec."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from safetensors.numpy import save_file
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

PIECES = ["[UNK]", "a", "b", "##b", "##c", "ab"]
MATRIX = np.arange(12, dtype=np.float16).reshape(6, 2)


def save(folder: Path, matrix: np.ndarray = MATRIX, name: str = "tokenizer.json") -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    own = Tokenizer(models.WordPiece({p: i for i, p in enumerate(PIECES)}, unk_token="[UNK]"))
    own.normalizer = normalizers.Lowercase()
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own.enable_truncation(2)
    own.save(str(folder / name))
    save_file({"embeddings": matrix, "count": np.ones(6, np.float32)}, folder / "m.safetensors")
    (folder / "tokenizer_config.json").write_text("{}")
    return folder
