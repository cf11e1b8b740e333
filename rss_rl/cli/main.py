"""`rss-rl`: the command line. Commands import torch and Ray only when they run."""

from __future__ import annotations

__all__ = ["app"]

from typing import Annotated

import typer

import rss_rl
from rss_rl.cli import (
    components,
    demo,
    doctor,
    evaluate,
    explain,
    export,
    fit,
    predict,
    report,
    select,
    serve,
    status,
    submit,
    sweep,
    train,
)
from rss_rl.cli.group import DEBUG_VARIABLE, Commands, deferred
from rss_rl.cli.options import option

_EPILOG = """
Begin with `rss-rl demo`. With data of your own:

`rss-rl fit reviews.csv --text review --label stars --keep 0.3`

`rss-rl select runs/reviews "A dull film with one good scene."`
"""

app = typer.Typer(
    name="rss-rl",
    cls=Commands,
    epilog=_EPILOG,
    no_args_is_help=True,
    rich_markup_mode="markdown",
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"rss-rl {rss_rl.__version__}")
        raise typer.Exit


@app.callback()
def global_options(
    version: Annotated[
        bool, option("--version", "Print the version.", callback=_version, is_eager=True)
    ] = False,
    debug: Annotated[
        bool,
        option("--debug", f"Also print tracebacks of expected errors, as {DEBUG_VARIABLE}=1 does."),
    ] = False,
) -> None:
    """Learn which words of a sentence matter: reinforced self-attention."""


app.command(epilog=demo.EPILOG)(demo.demo)
for name, purpose, example in (
    (
        "data",
        "List datasets, fetch them, prepare them for training, show what was prepared.",
        "data prepare reviews.csv --text review --label stars --out data/reviews",
    ),
    (
        "config",
        "Show configurations, with what each key means; list the shipped ones.",
        "config show sick reward.sparsity_cost=0.05",
    ),
):
    group = typer.Typer(cls=deferred(f"rss_rl.cli.{name}"), rich_markup_mode="markdown")
    shown = f"Example: `rss-rl {example}`"
    app.add_typer(group, name=name, help=purpose, epilog=shown, no_args_is_help=True)
app.command(epilog=fit.EPILOG)(fit.fit)
app.command(epilog=train.EPILOG)(train.train)
app.command(epilog=status.EPILOG)(status.status)
app.command(epilog=evaluate.EPILOG)(evaluate.evaluate)
app.command(epilog=select.EPILOG)(select.select)
app.command(epilog=explain.EPILOG)(explain.explain)
app.command(epilog=serve.EPILOG)(serve.serve)
app.command(epilog=predict.EPILOG)(predict.predict)
app.command(epilog=export.EPILOG)(export.export)
app.command(epilog=report.EPILOG)(report.report)
app.command(epilog=sweep.EPILOG)(sweep.sweep)
app.command(epilog=components.EPILOG)(components.components)
app.command(epilog=submit.EPILOG)(submit.submit)
app.command(epilog=doctor.EPILOG)(doctor.doctor)

if __name__ == "__main__":
    app()
