"""Nothing is ever unpickled from a file: pickles run code.

What Ray sends between the processes of one run is its own matter: it pickles, and a cluster is
trusted as a whole. Nothing of that reaches a disk of ours.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

MODULES = {"pickle", "_pickle", "cPickle", "dill", "cloudpickle", "marshal", "shelve", "joblib"}
CALLS = {"torch.load", "torch.save", "torch.jit.load", "torch.hub.load", "eval", "exec"}
CALLS |= {"yaml.unsafe_load", "yaml.full_load", "np.lib.format.read_array", "pandas.read_pickle"}
ALLOWED = {
    # These copy a component that is in memory, as a process boundary would; no file comes near it.
    "rss_rl/testing.py: pickle",
    # A module of ours by a name that is written out there, when it is first asked for.
    "rss_rl/__init__.py: importlib.import_module",
    # Installed plug-ins, and names that the user gave: see `Trust` there, and tests/test_trust.py.
    "rss_rl/components.py: importlib.import_module",
}
LOADERS = {"np.load", "numpy.load", "np.fromfile"}


def offences(tree: ast.AST) -> Iterator[str]:
    """What a module does that could unpickle a file."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from (a.name for a in node.names if a.name.partition(".")[0] in MODULES)
        elif isinstance(node, ast.ImportFrom):
            yield from (node.module for _ in "x" if (node.module or "").split(".")[0] in MODULES)
            if node.module in ("torch", "torch.serialization"):
                yield from (a.name for a in node.names if a.name in ("load", "save"))
        elif isinstance(node, ast.Call):
            name = ast.unparse(node.func)
            if name in CALLS or name in ("__import__", "importlib.import_module"):
                yield name
            keywords = {k.arg: ast.unparse(k.value) for k in node.keywords}
            if keywords.get("allow_pickle", "False") != "False":
                yield f"{name}(allow_pickle=...)"
            if name in LOADERS and keywords.get("allow_pickle") != "False":
                yield f"{name} without allow_pickle=False"
            if name == "yaml.load" and ast.unparse(node.args[1]) not in (
                "_Loader",
                "yaml.SafeLoader",
            ):
                yield "yaml.load with another loader"


def test_no_module_can_unpickle_a_file(repository: Path) -> None:
    found = [
        f"{path.relative_to(repository)}: {offence}"
        for package in ("rss_rl", "envs", "learners")
        for path in sorted((repository / package).rglob("*.py"))
        for offence in offences(ast.parse(path.read_text(encoding="utf-8")))
    ]
    assert set(found) == ALLOWED, "\n".join(found)
