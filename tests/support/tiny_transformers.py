"""Transformers of a few thousand weights, saved as `save_pretrained` saves real ones."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, normalizers, pre_tokenizers, processors
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    BertConfig,
    BertForSequenceClassification,
    BertModel,
    PreTrainedTokenizerFast,
)

LETTERS = "abcdefghijklmnopqrstuvwxyz0123456789'-.,!?<>_"
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
LONGEST = 16


def tokenizer(words: Sequence[str] = (), **settings: object) -> PreTrainedTokenizerFast:
    """Pieces are single letters, of which those within a word begin with ##, and `words`."""
    letters = [*LETTERS, *(f"##{letter}" for letter in LETTERS)]
    pieces = list(dict.fromkeys([*SPECIAL, *letters, *words]))
    own = Tokenizer(models.WordPiece({p: i for i, p in enumerate(pieces)}, unk_token="[UNK]"))
    own.normalizer = normalizers.Lowercase()
    own.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
    own.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    own.enable_padding(length=12)  # as the files of some models ask for
    return PreTrainedTokenizerFast(
        tokenizer_object=own,
        unk_token="[UNK]",
        pad_token="[PAD]",
        cls_token="[CLS]",
        sep_token="[SEP]",
        mask_token="[MASK]",
        **{"model_max_length": LONGEST, **settings},
    )


def save(
    folder: Path,
    *,
    classes: int = 0,
    seed: int = 0,
    words: Sequence[str] = (),
    longest: int = LONGEST,
    **settings: object,
) -> Path:
    """A BERT of two layers, or a classifier over one, in `folder`; it reads `longest` pieces."""
    cut = tokenizer(words, model_max_length=longest)
    given = {
        "vocab_size": len(cut),
        "hidden_size": 8,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": longest,
        "pad_token_id": 0,
        "num_labels": classes or 2,
    }
    config = BertConfig(**{**given, **settings})
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        model = BertForSequenceClassification(config) if classes else BertModel(config)
    model.save_pretrained(folder)
    cut.save_pretrained(folder)
    return folder


def save_another(folder: Path, name: str, *, classes: int = 0, **settings: object) -> Path:
    """Another type of model of three layers, such as `roberta`: an encoder, or a classifier."""
    cut = tokenizer()
    given = {
        "vocab_size": len(cut),
        "hidden_size": 8,
        "num_hidden_layers": 3,
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "max_position_embeddings": 2 * LONGEST,
        "pad_token_id": 0,
    }
    if name == "xlnet":  # texts of any length
        del given["max_position_embeddings"]
    own = {
        "distilbert": {"dim": 8, "n_layers": 3, "n_heads": 2, "hidden_dim": 16},
        "modernbert": {"local_attention": 8, "cls_token_id": 2, "sep_token_id": 3},
        "xlnet": {"d_model": 8, "n_layer": 3, "n_head": 2, "d_inner": 16},
        "squeezebert": {"embedding_size": 8},
        "gpt2": {"n_embd": 8, "n_layer": 3, "n_head": 2, "n_inner": 16},
    }
    kind = AutoModelForSequenceClassification if classes else AutoModel
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = kind.from_config(
            AutoConfig.for_model(name, **{**given, **own.get(name, {}), **settings})
        )
    model.save_pretrained(folder)
    cut.save_pretrained(folder)
    return folder
