"""Learning which words matter: distributed training of hard attention over text.

    import rss_rl

    run = rss_rl.fit("reviews.parquet", text="review", label="stars", keep=0.2, out="runs/reviews")
    run.model.select(["A dull film with one good scene."])

    model = rss_rl.load("runs/reviews")  # a run, or what `rss-rl export` wrote; without Ray
    print(model.predict(["A dull film with one good scene."])[0])

`prepare` and `train` are the two halves of `fit`; `Run` opens an existing run. Each command of
`rss-rl` that works on data, runs or models is the function of its name. Pluggable components:
`rss_rl.components`; their contract tests: `rss_rl.testing`.
"""

from __future__ import annotations

__all__ = [
    "Run",
    "__version__",
    "demo",
    "encode",
    "evaluate",
    "explain",
    "export",
    "fit",
    "load",
    "predict",
    "prepare",
    "report",
    "select",
    "serve",
    "status",
    "submit",
    "sweep",
    "train",
]

from pathlib import Path
from typing import TYPE_CHECKING, Any

from rss_rl.version import VERSION

if TYPE_CHECKING:
    from rss_rl.api.demo import demo
    from rss_rl.api.encode import encode
    from rss_rl.api.evaluate import evaluate
    from rss_rl.api.explain import explain
    from rss_rl.api.export import export
    from rss_rl.api.fit import fit
    from rss_rl.api.predict import predict
    from rss_rl.api.prepare import prepare
    from rss_rl.api.report import report
    from rss_rl.api.run import Run
    from rss_rl.api.select import select
    from rss_rl.api.serve import serve
    from rss_rl.api.status import status
    from rss_rl.api.submit import submit
    from rss_rl.api.sweep import sweep
    from rss_rl.api.train import train
    from rss_rl.inference.model import Model

__version__ = VERSION


def __getattr__(name: str) -> Any:
    """Import lazily, so that importing the library alone does not import torch."""
    if name not in __all__:
        raise AttributeError(f"module 'rss_rl' has no attribute '{name}'")
    import importlib

    from rss_rl.api.signatures import readable

    member = getattr(importlib.import_module(f"rss_rl.api.{name.lower()}"), name)
    globals()[name] = member if isinstance(member, type) else readable(member)
    return globals()[name]


def __dir__() -> list[str]:
    return sorted(__all__)


def load(
    path: Path | str,
    which: str | int = "best",
    *,
    trust_plugins: bool = False,
    device: str = "cpu",
) -> Model:
    """A trained model, ready to select words and predict; imports torch, never Ray.

    Args:
        path: the directory of a run, or one that `rss-rl export` wrote.
        which: checkpoint of a run: `best`, `latest` or a step; ignored for an export.
        trust_plugins: import components that its files name as package.module:OBJECT, which can
            then run any code.
        device: that computes: cpu, cuda, cuda:1, ...

    Raises:
        RssError: `path` is neither, or its files are damaged; or there is no such device.
    """
    from rss_rl.components import EVERYTHING, NOTHING
    from rss_rl.inference.model import load_model

    return load_model(path, which, EVERYTHING if trust_plugins else NOTHING, device)
