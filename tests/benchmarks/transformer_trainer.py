"""Fine-tuning here, beside the `Trainer` of the `transformers` library.

    python tests/benchmarks/transformer_trainer.py accuracy --pretrained FOLDER \\
        --data prepared/cr prepared/sst-2 --seeds 0 1 2
    python tests/benchmarks/transformer_trainer.py seconds --pretrained FOLDER --data prepared/cr

The Trainer fine-tunes an AutoModelForSequenceClassification at its default rate of 5e-5; ours are
the settings of configs/transformer/sentences.yaml. Both read the same weights, rows, splits and
batches' size; both have Adam, a rate that falls to 0 and gradients clipped to a norm of 1. The
Trainer groups texts of like length, which is faster than its default, as it pads the shorter ones.

accuracy: both read all words of all rows. Dev is scored after each epoch and the best epoch kept;
test is scored once. OUT/accuracy.jsonl holds a line for each data, system and seed. With --save
the Trainer's models are kept, each in DIRECTORY/DATA-SEED.

seconds: of the processor, for learning from the same rows, in turns: some updates of our co-train,
then an epoch of the Trainer over their rows, cut to what the model reads at once, and another over
all of them in parts. The policy is new, its bias set towards the share that is asked for, as what a
policy has learnt changes no time. OUT/seconds.jsonl holds a line for each turn. A ratio, in
OUT/seconds.csv, is that of all turns, with a 95% interval by 10,000 bootstrap samples of them.

The same command continues from the lines that are there.
"""

from __future__ import annotations

__all__: list[str] = []

import argparse
import csv
import itertools
import json
import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
import transformers

import rss_rl
from rss_rl.config import RunConfig, load_config
from rss_rl.data.store import Prepared, Split, open_prepared
from rss_rl.logs.events import NO_LOG
from rss_rl.packaged import find_config
from rss_rl.training.learner import LocalLearner
from rss_rl.training.roles import LocalRoles
from rss_rl.training.session import Session
from rss_rl.types import Array

Item = dict[str, Any]


def settings(given: argparse.Namespace, data: str, seed: int) -> list[str]:
    """What both ways of training have in common."""
    return [
        f"data={data}",
        f"seed={seed}",
        f"batch_size={given.batch_size}",
        f"model.encoder.options.pretrained={given.pretrained}",
        f"learner.precision={given.precision}",
        f"sampler.precision={given.precision}",
        *given.set,
    ]


class Peer:
    """The Trainer on the rows of prepared data.

    Args:
        epochs: of each call of `trainer`'s train.
        folder: for its checkpoints.
    """

    def __init__(self, given: argparse.Namespace, epochs: int, seed: int, folder: str) -> None:
        transformers.utils.logging.set_verbosity_error()
        transformers.set_seed(seed)
        self._tokenizer = transformers.AutoTokenizer.from_pretrained(given.pretrained)
        kind = transformers.AutoModelForSequenceClassification
        self.model = kind.from_pretrained(given.pretrained, num_labels=2)
        self._longest = self.model.config.max_position_embeddings
        self._arguments = {
            "output_dir": folder,
            "num_train_epochs": epochs,
            "per_device_train_batch_size": given.batch_size,
            "per_device_eval_batch_size": given.batch_size,
            "train_sampling_strategy": "group_by_length",
            "seed": seed,
            "use_cpu": True,
            "bf16": given.precision == "bfloat16",
            "report_to": "none",
            "disable_tqdm": True,
            "logging_strategy": "no",
        }

    def save(self, folder: Path) -> None:
        """Write the model and its tokenizer, as `policy.pretrained` takes them."""
        self.model.save_pretrained(folder)
        self._tokenizer.save_pretrained(folder)

    def items(
        self, split: Split, rows: Sequence[int] | Array, *, parts: bool = False
    ) -> list[Item]:
        """The rows as the Trainer reads them: their first pieces, or all of them in parts."""
        texts = [" ".join(split.words(int(row))[0]) for row in rows]
        labels = split.batch(rows).labels.tolist()
        found = self._tokenizer(
            texts, truncation=True, max_length=self._longest, return_overflowing_tokens=parts
        )
        owners = found.get("overflow_to_sample_mapping", range(len(texts)))
        pieces = found["input_ids"]
        return [
            {"input_ids": ids, "attention_mask": [1] * len(ids), "labels": labels[owner]}
            for ids, owner in zip(pieces, owners, strict=True)
        ]

    def trainer(self, train: list[Item], dev: list[Item] | None = None) -> transformers.Trainer:
        """One that keeps the epoch that is best on dev, or, without dev, no epoch."""
        scored: dict[str, Any] = {"save_strategy": "no"}
        if dev is not None:
            scored = {
                "eval_strategy": "epoch",
                "save_strategy": "epoch",
                "save_only_model": True,
                "save_total_limit": 1,
                "load_best_model_at_end": True,
                "metric_for_best_model": "accuracy",
            }
        made = transformers.Trainer(
            self.model,
            transformers.TrainingArguments(**self._arguments, **scored),
            data_collator=transformers.DataCollatorWithPadding(self._tokenizer),
            train_dataset=train,
            eval_dataset=dev,
            compute_metrics=hits,
        )
        made.remove_callback(transformers.PrinterCallback)
        return made


def hits(found: transformers.EvalPrediction) -> dict[str, float]:
    """The share of rows whose label is the likeliest."""
    return {"accuracy": float((found.predictions.argmax(-1) == found.label_ids).mean())}


def peer_accuracy(given: argparse.Namespace, data: str, seed: int) -> Item:
    """Scores of the Trainer."""
    prepared = open_prepared(data)
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(given, given.epochs, seed, folder)
        rows = {
            name: peer.items(split, range(len(split)))
            for name in ("train", "dev", "test")
            for split in [prepared.split(name)]
        }
        trainer = peer.trainer(rows["train"], rows["dev"])
        trainer.train()
        if given.save is not None:
            peer.save(given.save / f"{prepared.manifest.name}-{seed}")
        key = "eval_accuracy"
        return {
            "epochs": [line[key] for line in trainer.state.log_history if key in line],
            "dev": trainer.state.best_metric,
            "test": trainer.evaluate(rows["test"])[key],
        }


def own_accuracy(given: argparse.Namespace, data: str, seed: int) -> Item:
    """Scores of a run that reads all words in every update."""
    prepared = open_prepared(data)
    batches = -(-len(prepared.split("train")) // given.batch_size)
    updates = given.epochs * batches
    config = load_config(find_config("transformer/sentences"), settings(given, data, seed))
    tree = config.model_dump(mode="json")
    tree["policy"] = {"name": "select-all"}
    tree["reward"] = {}
    tree["phases"] = [
        {"name": "all words", "supervised": True, "selection": "all", "steps": updates}
    ]
    tree["learner"]["supervised"]["decay_updates"] = updates
    tree["evaluation"]["every"] = tree["checkpoint"]["every"] = batches
    with tempfile.TemporaryDirectory() as folder:
        run = rss_rl.train(tree, out=Path(folder) / "run")
        scored = run.metrics().to_pylist()
        found = run.report["splits"]
        return {
            "epochs": [
                line["value"]
                for line in scored
                if line["tag"] == "dev/all/accuracy" and line["step"]
            ],
            "dev": found["dev"]["all"]["accuracy"],
            "test": found["test"]["all"]["accuracy"],
        }


ACCURACIES = {"trainer": peer_accuracy, "ours": own_accuracy}


def accuracy(given: argparse.Namespace) -> None:
    """Train what is missing, print all."""
    path = given.out / "accuracy.jsonl"
    done = read_lines(path)
    known = {(line["row"], line["system"], line["seed"]) for line in done}
    for data, seed, system in itertools.product(given.data, given.seeds, ACCURACIES):
        key = {"row": Path(data).name, "system": system, "seed": seed}
        if tuple(key.values()) not in known:
            began = time.process_time()
            found = key | ACCURACIES[system](given, data, seed)
            done.append(noted(path, found | {"seconds": time.process_time() - began}))
    for name, system in sorted({(line["row"], line["system"]) for line in done}):
        own = [line for line in done if (line["row"], line["system"]) == (name, system)]
        dev, test = (float(np.mean([line[split] for line in own])) for split in ("dev", "test"))
        print(f"{name} {system}: dev {dev:.1%}, test {test:.1%}, {len(own)} seeds")


def read_lines(path: Path) -> list[Item]:
    """Those of a file of JSON lines, none where there is no file."""
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def noted(path: Path, line: Item) -> Item:
    """The line, when it is printed and stands in the file."""
    with path.open("a") as file:
        file.write(json.dumps(line) + "\n")
    print(json.dumps(line), flush=True)
    return line


def co_train(given: argparse.Namespace, data: str, prepared: Prepared) -> Session:
    """Co-training of a new policy that begins at its share."""
    of_timing = [
        "model.encoder.options.positions=closed",  # kept, a review takes more windows
        f"reward.target_share={given.share}",
        "learner.policy.learning_rate=1e-9",
    ]
    config = load_config(
        find_config("transformer/sentences"), [*settings(given, data, 0), *of_timing]
    )
    tree = config.model_dump(mode="json")
    tree["phases"] = [{**tree["phases"][-1], "steps": 10**6}]
    for learner in ("supervised", "policy"):
        tree["learner"][learner]["decay_updates"] = None
    config = RunConfig.model_validate(tree)
    learner = LocalLearner(config, prepared)
    session = Session(
        config, prepared, learner, lambda: LocalRoles().backend(config, prepared, NO_LOG)
    )
    bias: Any = learner.models.policy.modules_by_role[0].score.bias  # type: ignore[union-attr]
    for _ in range(3):  # towards the share, of a new policy whose logits have any mean
        session.update()  # its rollout was drawn before the last step
        shares = torch.tensor([given.share, session.update().scalars["selection/kept"]])
        with torch.no_grad():
            bias += torch.logit(shares, 0.01).diff().neg()
    return session


def seconds(given: argparse.Namespace) -> None:
    """Take the turns that are missing; of all, write OUT/seconds.csv."""
    path = given.out / "seconds.jsonl"
    rows = []
    for data in given.data:
        name = Path(data).name
        done = [line for line in read_lines(path) if line["row"] == name]
        if len(done) < given.turns:
            done += take_turns(given, data, given.turns - len(done), path)
        for system in ("trainer", "trainer_parts"):
            times = np.array([[line["ours"], line[system]] for line in done])
            middle, low, high = ratio(times)
            texts = sum(line["texts"] for line in done)
            rows.append(
                {
                    "row": name,
                    "system": system,
                    "turns": len(done),
                    "texts": texts // len(done),
                    "kept": round(statistics.mean(line["kept"] for line in done), 4),
                    "ms_a_text": round(1000 * times[:, 1].sum() / texts, 1),
                    "ms_a_text_ours": round(1000 * times[:, 0].sum() / texts, 1),
                    "ratio": round(middle, 3),
                    "low": round(low, 3),
                    "high": round(high, 3),
                }
            )
            print(rows[-1])
    with (given.out / "seconds.csv").open("w", newline="") as file:
        writer = csv.DictWriter(file, rows[0], lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)


def take_turns(
    given: argparse.Namespace, data: str, turns: int, path: Path
) -> Iterator[dict[str, Any]]:
    """Seconds of each system for the rows of a turn, and the share that ours kept of them."""
    prepared = open_prepared(data)
    train = prepared.split("train")
    session = co_train(given, data, prepared)
    with tempfile.TemporaryDirectory() as folder:
        peer = Peer(given, 1, 0, folder)
        for _ in range(turns):
            began = time.process_time()
            reports = [session.update() for _ in range(given.updates)]
            spent = {"ours": time.process_time() - began}
            texts = np.concatenate([report.rows for report in reports])
            for system, parts in (("trainer", False), ("trainer_parts", True)):
                trainer = peer.trainer(peer.items(train, texts, parts=parts))
                began = time.process_time()
                trainer.train()
                spent[system] = time.process_time() - began
            kept = float(np.mean([report.scalars["selection/kept"] for report in reports]))
            yield noted(path, {"row": Path(data).name, "texts": len(texts), "kept": kept} | spent)
    session.close()


def ratio(times: Array) -> tuple[float, float, float]:
    """Sum of the first column over that of the second, of [turns, 2], with its interval."""
    draws = np.random.default_rng(0).integers(0, len(times), (10_000, len(times)))
    sums = times[draws].sum(1)
    low, high = np.quantile(sums[:, 0] / sums[:, 1], [0.025, 0.975])
    first, second = times.sum(0)
    return float(first / second), float(low), float(high)


def parsed(arguments: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=["accuracy", "seconds"])
    parser.add_argument("--pretrained", required=True, metavar="FOLDER")
    parser.add_argument("--data", required=True, nargs="+", metavar="PREPARED")
    parser.add_argument("--out", type=Path, default=Path("trainer"), help="directory")
    parser.add_argument("--batch-size", type=int, default=32)
    parser.add_argument("--precision", choices=["float32", "bfloat16"], default="bfloat16")
    parser.add_argument("--set", nargs="*", default=[], help="settings of ours, as KEY=VALUE")
    parser.add_argument("--seeds", type=int, nargs="+", default=[0])
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--save", type=Path, help="directory of the Trainer's models, in accuracy")
    parser.add_argument("--share", type=float, default=0.4, help="of the words, in seconds")
    parser.add_argument("--updates", type=int, default=8, help="of a turn")
    parser.add_argument("--turns", type=int, default=5)
    return parser.parse_args(arguments)


def main() -> None:
    """Measure what is missing, print, write."""
    given = parsed()
    torch.set_num_threads(1)
    given.out.mkdir(parents=True, exist_ok=True)
    (accuracy if given.what == "accuracy" else seconds)(given)


if __name__ == "__main__":
    main()
