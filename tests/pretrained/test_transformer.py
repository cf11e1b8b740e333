"""The transformer encoder: what it reads, what it leaves out, and what of it learns."""

from __future__ import annotations

import copy
import json
import os
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import tiny_transformers
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors import safe_open
from small import stepped
from transformers import AutoModel

from rss_rl.config import ModelConfig, OptimizerConfig
from rss_rl.errors import ConfigError
from rss_rl.learners.optim import GradientStep
from rss_rl.models.build import build_classifier
from rss_rl.models.classifier import Classifier
from rss_rl.models.dropout import keyed_dropout
from rss_rl.models.encoders.transformer import TransformerEncoder
from rss_rl.pretrained.folder import Pretrained, open_pretrained
from rss_rl.types import ROLES, LabelSpec

WORDS = ("<pad>", "<unk>", "fine", "dull", "a", "film", "not", "ab", "extraordinarily", "so")
LABELS = LabelSpec("classes", ("no", "yes"))


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tiny_transformers.save(tmp_path_factory.mktemp("tiny") / "bert")


def classifier(
    folder: Path | str, sentences: int = 1, *, labels: LabelSpec = LABELS, **options: Any
) -> Classifier:
    tree = {"name": "transformer", "options": {"pretrained": str(folder), **options}}
    config = ModelConfig.model_validate({"encoder": tree, "hidden": 4, "dropout": 0.0})
    vectors = np.zeros((len(WORDS), 3), np.float32)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        return build_classifier(config, labels, sentences, vectors, len(WORDS), words=WORDS).eval()


def encoder(folder: Path, **options: Any) -> TransformerEncoder:
    found = classifier(folder, **options).encoder
    assert isinstance(found, TransformerEncoder)
    return found


def pieces(words: list[int]) -> list[int]:
    """Letter by letter, as the tokenizer of the tiny model cuts; by hand."""
    base, inner = len(tiny_transformers.SPECIAL), len(tiny_transformers.LETTERS)
    found = []
    for word in words:
        if word < 2:
            found.append(1)
            continue
        for place, letter in enumerate(WORDS[word]):
            number = tiny_transformers.LETTERS.index(letter)
            found.append(base + number + (inner if place else 0))
    return found


def slow(folder: Path, words: list[int]) -> torch.Tensor:
    """The vector of one text, read by the library itself, window by window."""
    model = AutoModel.from_pretrained(folder).eval()
    cut, room = pieces(words), tiny_transformers.LONGEST - 2
    if not cut:
        return torch.zeros(8)
    count = -(-len(cut) // room)
    windows: list[list[int]] = [[] for _ in range(count)]
    for rank, piece in enumerate(cut):
        windows[rank * count // len(cut)].append(piece)
    states = [
        model(input_ids=torch.tensor([[2, *window, 3]])).last_hidden_state[0] for window in windows
    ]
    return torch.cat(states).mean(0)


def batch(rows: list[list[int]]) -> tuple[torch.Tensor, torch.Tensor]:
    longest = max(map(len, rows))
    tokens = torch.tensor([row + [0] * (longest - len(row)) for row in rows])
    return tokens, torch.arange(longest) < torch.tensor([len(row) for row in rows])[:, None]


@settings(max_examples=15)
@given(
    rows=st.lists(
        st.lists(st.integers(1, len(WORDS) - 1), min_size=1, max_size=6), min_size=1, max_size=5
    ),
    seed=st.integers(0, 99),
)
def test_equals_the_library(folder: Path, rows: list[list[int]], seed: int) -> None:
    """In a batch, cut into windows, of the selected words: what the library says of each text."""
    tokens, valid = batch(rows)
    draw = torch.Generator().manual_seed(seed)
    bits = torch.rand(len(rows), ROLES, tokens.shape[1], generator=draw) < 0.5
    selection = bits & valid[:, None]
    with torch.no_grad():
        found = encoder(folder)(tokens, valid, selection)
        for row, vector, keep in zip(rows, found, selection.any(1), strict=True):
            kept = [word for word, bit in zip(row, keep.tolist(), strict=False) if bit]
            torch.testing.assert_close(vector, slow(folder, kept), atol=1e-5, rtol=1e-5)


OTHERS = ["roberta", "deberta-v2", "electra", "modernbert"]


@pytest.mark.parametrize("name", OTHERS)
def test_other_transformers_equal_the_library(name: str, tmp_path: Path) -> None:
    folder = tiny_transformers.save_another(tmp_path / name, name)
    rows = [[2, 3, 4, 5, 6], [8, 7, 8], [2]]  # the second in windows
    tokens, valid = batch(rows)
    with torch.no_grad():
        found = encoder(folder)(tokens, valid, valid[:, None].expand(-1, ROLES, -1))
        for row, vector in zip(rows, found, strict=True):
            torch.testing.assert_close(vector, slow(folder, row), atol=1e-5, rtol=1e-5)


@pytest.fixture(scope="module")
def faithful(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, str], Classifier]:
    """Classifiers of pairs over transformers of each type, with both kinds of positions."""
    place = tmp_path_factory.mktemp("types")
    folders = {name: tiny_transformers.save_another(place / name, name) for name in OTHERS}
    folders["bert"] = tiny_transformers.save(place / "bert")
    return {
        (name, positions): classifier(path, 2, positions=positions)
        for name, path in folders.items()
        for positions in ("closed", "kept")
    }


@pytest.mark.parametrize("positions", ["closed", "kept"])
@pytest.mark.parametrize("name", ["bert", *OTHERS])
@settings(max_examples=8)
@given(
    rows=st.lists(
        st.lists(st.integers(1, len(WORDS) - 1), min_size=1, max_size=6), min_size=2, max_size=6
    ),
    seed=st.integers(0, 99),
)
def test_unselected_words_are_irrelevant_to_the_bit(
    faithful: dict[tuple[str, str], Classifier],
    name: str,
    positions: str,
    rows: list[list[int]],
    seed: int,
) -> None:
    """Other words, of other numbers of pieces, in their places; of both sentences of pairs."""
    model = faithful[name, positions]
    draw = torch.Generator().manual_seed(seed)
    half = len(rows) // 2
    given = [batch(part) for part in (rows[:half], rows[half : 2 * half])]
    chosen, other = [], []
    for tokens, valid in given:
        bits = torch.rand(half, ROLES, tokens.shape[1], generator=draw) < 0.3
        chosen.append(bits & valid[:, None])
        new = torch.randint(1, len(WORDS), tokens.shape, generator=draw)
        other.append(torch.where(chosen[-1].any(1) | ~valid, tokens, new))
    tokens, valid = zip(*given, strict=True)
    with torch.no_grad():
        assert torch.equal(model(tokens, valid, chosen), model(other, valid, chosen))


def test_kept_positions_keep_distances(folder: Path) -> None:
    """Selected words that follow each other are read as if side by side; apart they are not."""
    tokens, valid = batch([[2, 4, 9]])
    together, apart = (torch.zeros(1, ROLES, 3, dtype=torch.bool) for _ in range(2))
    together[..., :2] = apart[..., [0, 2]] = True
    swapped = tokens[:, [0, 2, 1]]
    closed, kept = (encoder(folder, positions=p) for p in ("closed", "kept"))
    with torch.no_grad():
        for one in (closed, kept):
            torch.testing.assert_close(one(tokens, valid, together), slow(folder, [2, 4])[None])
        same = closed(swapped, valid, apart), kept(swapped, valid, apart)
        torch.testing.assert_close(same[0], slow(folder, [2, 4])[None])
        assert not torch.allclose(same[1], slow(folder, [2, 4])[None], atol=1e-4)


def test_gates_of_0_and_1_are_a_selection_and_others_have_gradients(folder: Path) -> None:
    one = encoder(folder)
    tokens, valid = batch([[2, 3, 4, 5], [8, 7]])
    selection = torch.zeros(2, ROLES, 4, dtype=torch.bool)
    selection[0, :, [0, 2]] = selection[1, :, 1] = True
    gates = selection.float().requires_grad_()
    vectors = one.gated(tokens, valid, gates)
    torch.testing.assert_close(vectors, one(tokens, valid, selection))
    vectors.square().sum().backward()
    assert gates.grad is not None
    assert bool((gates.grad[selection] != 0).any())
    assert bool((gates.grad[~selection] == 0).all())


@pytest.mark.parametrize("name", ["roberta", "electra", "distilbert", "albert", "modernbert"])
def test_other_transformers_weigh_words_by_gates(name: str, tmp_path: Path) -> None:
    folder = tiny_transformers.save_another(tmp_path / name, name)
    one = encoder(folder)
    tokens, valid = batch([[2, 3, 4, 5, 6], [8, 7]])  # further than ModernBERT's window of 8
    gates = valid[:, None].float().repeat(1, ROLES, 1).requires_grad_()
    vectors = one.gated(tokens, valid, gates)
    torch.testing.assert_close(vectors, one(tokens, valid, gates > 0), atol=1e-5, rtol=1e-4)
    vectors[:, 0].sum().backward()
    assert gates.grad is not None
    assert bool((gates.grad[gates > 0] != 0).all())


def test_a_transformer_that_cannot_weigh_words_says_so(tmp_path: Path) -> None:
    folder = tiny_transformers.save_another(tmp_path / "deberta", "deberta-v2")
    tokens, valid = batch([[2, 3]])
    with pytest.raises(ConfigError, match="attention of deberta-v2 cannot weigh") as caught:
        encoder(folder).gated(tokens, valid, valid[:, None].float().repeat(1, ROLES, 1))
    assert "reinforce" in str(caught.value.remedy)


@pytest.mark.parametrize(
    ("options", "learning"),
    [
        ({"learns": "all"}, "all"),
        ({"learns": "last", "last": 1}, "layer.1."),
        ({"learns": "lora", "rank": 2}, "lora_"),
        ({"learns": "nothing"}, ""),
    ],
)
def test_what_learns_steps_travels_and_is_saved(
    folder: Path, options: dict[str, Any], learning: str
) -> None:
    model = classifier(folder, **options).train()
    before = copy.deepcopy(dict(model.named_parameters()))
    step = GradientStep(
        "supervised", model, OptimizerConfig(name="adam", learning_rate=0.1), ("embedding.",)
    )
    tokens, valid = batch([[2, 3, 4, 5], [8, 7]])
    loss = model.losses(model([tokens], [valid]), torch.tensor([0, 1])).sum()
    stepped(step, loss, 0)
    moved = {n for n, p in model.named_parameters() if not torch.equal(p, before[n])}
    inner = {n for n in moved if n.startswith("encoder.")}
    assert moved - inner == {n for n in before if n.startswith("head.")}
    if learning == "all":
        unread = {n for n in before if n.startswith("encoder.")} - inner
        assert not any("layer" in n and "key.bias" not in n for n in unread)  # softmax ignores it
    elif not learning:
        assert not inner
    else:
        assert inner
        assert all(learning in n for n in inner)
    state = model.state_dict()
    saved = {n for n in state if n.startswith("encoder.")}
    assert saved == {
        n for n, p in model.named_parameters() if n.startswith("encoder.") and p.requires_grad
    }
    again = classifier(folder, **options)
    again.load_state_dict(state)
    with torch.no_grad():
        assert torch.equal(again([tokens], [valid]), model.eval()([tokens], [valid]))


@pytest.mark.parametrize("options", [{"learns": "all"}, {"learns": "lora", "rank": 2}])
def test_what_has_been_learnt_is_written_as_a_folder(
    folder: Path, tmp_path: Path, options: dict[str, Any]
) -> None:
    """Adapters merged; read by the library itself, and nothing changed in the encoder."""
    model = encoder(folder, **options)
    with torch.no_grad():
        for number, parameter in enumerate(model.parameters()):
            if parameter.requires_grad:
                parameter += 0.1 * torch.randn(
                    parameter.shape, generator=torch.Generator().manual_seed(number)
                )
        words = [2, 3, 4]
        tokens, valid = batch([words])
        found = model(tokens, valid, valid[:, None].expand(-1, ROLES, -1))
        model.save(tmp_path / "saved")
        assert torch.allclose(slow(tmp_path / "saved", words), found[0], atol=1e-5)
        assert not torch.allclose(slow(folder, words), found[0], atol=1e-2)
        assert torch.equal(model(tokens, valid, valid[:, None].expand(-1, ROLES, -1)), found)


def test_dropout_follows_the_keys(folder: Path) -> None:
    one = encoder(folder).train()
    tokens, valid = batch([[2, 3, 4, 5], [8, 7]])
    everything = valid[:, None].expand(-1, ROLES, -1)

    def read(*keys: int) -> torch.Tensor:
        torch.rand(7)  # whatever was drawn before
        with keyed_dropout(torch.tensor(keys)):
            return one(tokens, valid, everything)

    assert torch.equal(read(1, 2), read(1, 2))
    assert not torch.equal(read(1, 2), read(1, 3))


def test_a_name_without_a_network(monkeypatch: pytest.MonkeyPatch) -> None:
    def unreachable(**_: Any) -> str:
        raise OSError("the network is unreachable")

    monkeypatch.setattr("huggingface_hub.snapshot_download", unreachable)
    with pytest.raises(ConfigError, match=r"cannot be downloaded .* is unreachable") as caught:
        classifier("somebody/something")
    assert "give a folder" in str(caught.value.remedy)


@pytest.mark.parametrize(
    "part", ["pytorch_model.bin", "../outside.safetensors", "lost.safetensors", None]
)
def test_an_index_of_weights_names_nothing_but_them(
    folder: Path, tmp_path: Path, part: str | None
) -> None:
    """The library would load others as pickles, which run code, or from elsewhere."""
    place = shutil.copytree(folder, tmp_path / "inside" / "sharded")
    (place / "model.safetensors").rename(place / "model-1.safetensors")
    shutil.copy(place / "model-1.safetensors", place.parent / "outside.safetensors")
    (place / "pytorch_model.bin").write_bytes(b"\x80")
    with safe_open(place / "model-1.safetensors", "np") as file:
        parts = dict.fromkeys(file.keys(), "model-1.safetensors")
    index = place / "model.safetensors.index.json"
    index.write_text(json.dumps({"metadata": {}, "weight_map": parts}))
    before = open_pretrained(str(place)).digest
    open_pretrained(str(place)).encoder()
    name = next(iter(parts))
    index.write_text("{}" if part is None else json.dumps({"weight_map": parts | {name: part}}))
    with pytest.raises(ConfigError, match="is not a complete index" if part is None else part):
        open_pretrained(str(place))
    assert Pretrained(str(place), place).digest != before


def _set(name: str, **values: Any) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        tree = json.loads((place / name).read_text())
        (place / name).write_text(json.dumps(tree | values))

    return change


def _cut_by(**model: Any) -> Callable[[Path], None]:
    return _set("tokenizer.json", model={"continuing_subword_prefix": "##"} | model)


def _as_fifo(name: str) -> Callable[[Path], None]:
    def change(place: Path) -> None:
        (place / name).unlink(missing_ok=True)
        os.mkfifo(place / name)

    return change


def _holds(name: str, content: str) -> Callable[[Path], object]:
    return lambda place: (place / name).write_text(content)


def _lacks(name: str) -> Callable[[Path], object]:
    return lambda place: (place / name).unlink()


def _pickled(place: Path) -> None:
    (place / _WEIGHTS).rename(place / "pytorch_model.bin")


_WEIGHTS = "model.safetensors"
_TENFOLD = {"type": "Replace", "pattern": {"String": "a"}, "content": "a" * 10}
_NESTED = {"type": "Sequence", "normalizers": [_TENFOLD] * 3}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (shutil.rmtree, "there is no such folder"),
        (_lacks("config.json"), "has no config.json"),
        (_holds("config.json", "{}"), "config.json cannot be used"),
        *((_holds("config.json", json.dumps({"model_type": "bert"} | tree)), "is not an encoder")
          for tree in ({"model_type": "gpt2"}, {"model_type": "t5"}, {"is_decoder": True})),
        (_lacks(_WEIGHTS), "has no weights"),
        (_pickled, "in pickle form"),
        (_holds(_WEIGHTS, "damaged"), "model.safetensors is not a complete file of weights"),
        (_lacks("tokenizer.json"), "has no tokenizer.json"),
        (_holds("tokenizer.json", "{}"), r"json is not a complete tokenizer \(.+\)"),
        (_set("config.json", hidden_size=0), "hidden_size=0"),
        (_set("config.json", num_hidden_layers=1_000_000), "num_hidden_layers=1000000"),
        (_set("config.json", num_hidden_layers=-3), "num_hidden_layers=-3"),
        (_set("config.json", vocab_size=10**10), "describes 80,000,0"),
        (_set("config.json", attn_implementation="someone/kernel"), "may be code"),
        (lambda place: (place / "adapter_config.json").write_text("{}"), "has an adapter"),
        (_cut_by(type="Unigram", unk_id=None, vocab=[["a", -1.0]]), "unk_id"),
        (_cut_by(type="WordPiece", vocab={"a": 5}, unk_token="x", max_input_chars_per_word=9),
         "Missing"),
        (_cut_by(type="WordLevel", vocab={"a": 5, "[UNK]": 5000}, unk_token="[UNK]"), "piece 5000"),
        (_set("tokenizer.json", normalizer={"type": "Sequence", "normalizers": [_NESTED] * 3}),
         "normalizer makes texts up to 1000000000 times as long"),
        (_set("tokenizer_config.json", model_max_length=2), "no room for a word"),
        *((_as_fifo(name), f"{name} is no regular file") for name in (
            "config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors",
            "model-2.safetensors", "model.safetensors.index.json")),
    ],
)  # fmt: skip
def test_a_strange_folder_is_refused(
    folder: Path, tmp_path: Path, change: Callable[[Path], object], what: str
) -> None:
    """At once and in one line, whoever made it, also where only parameters are counted."""
    place = shutil.copytree(folder, tmp_path / "strange")
    change(place)
    with pytest.raises(ConfigError, match=what) as error:
        classifier(place)
    assert str(error.value).count("\n") == 0
    assert error.value.where == str(place)
    assert error.value.remedy
    with torch.device("meta"), pytest.raises(ConfigError, match=what):
        classifier(place)


@pytest.mark.parametrize(
    ("size", "what"),
    [
        ({"num_hidden_layers": 3}, r"in 16 tensors, such as \S+ is missing"),
        ({"intermediate_size": 4}, r"is of shape \(16,\), not \(4,\)"),
    ],
)
def test_weights_that_do_not_fit(
    folder: Path, tmp_path: Path, size: dict[str, int], what: str
) -> None:
    place = shutil.copytree(folder, tmp_path / "unfit")
    _set("config.json", **size)(place)
    with pytest.raises(ConfigError, match=f"do not fit its config.json.*{what}"):
        classifier(place)


def test_it_reads_the_sentences_of_a_passage_and_the_question(folder: Path) -> None:
    """Of each the selected words: others change no bit, and each selected one counts."""
    model = classifier(folder, 2, labels=LabelSpec("sentence"))
    passage, question = [4, 5, 2, 9, 6, 3, 7], [6, 2, 8, 3]
    marks = torch.tensor([[0, 0, 0, 1, 1, 1, 1]])
    kept = [torch.tensor([[1, 0, 1, 0, 1, 1, 0]]).bool(), torch.tensor([[1, 0, 0, 1]]).bool()]
    bits = [side[:, None].expand(-1, ROLES, -1) for side in kept]

    def logits(first: list[int], second: list[int]) -> torch.Tensor:
        tokens = [torch.tensor([first]), torch.tensor([second])]
        with torch.no_grad():
            return model(tokens, [torch.ones_like(side).bool() for side in tokens], bits, marks)

    found = logits(passage, question)
    for slot, words in enumerate((passage, question)):
        for place in range(len(words)):
            changed = [passage[:], question[:]]
            changed[slot][place] = 5 if words[place] != 5 else 4
            same = torch.equal(found, logits(*changed))
            assert same is not bool(kept[slot][0, place]), (slot, place)
