"""A disk that fills up while a run trains: one clear error, and nothing lost that was saved."""

from __future__ import annotations

import json
import subprocess
import sys
import textwrap
from collections.abc import Callable
from pathlib import Path

from tiny_runs import Outcome

from rss_rl.config import RunConfig
from rss_rl.logs.events import EVENTS_FILE, parse_events
from rss_rl.runs.checkpoint import load_checkpoint
from rss_rl.training.run import Finished, train
from rss_rl.training.status import read_status

FILLING = """
    import json, resource, signal, sys
    from pathlib import Path
    from rss_rl.config import parse_config
    from rss_rl.errors import CheckpointError
    from rss_rl.runs.checkpoint import checkpoint_steps
    from rss_rl.logs.metrics import MetricsWriter
    from rss_rl.training.run import train
    from rss_rl.training.trainer import UpdateReport

    config = parse_config(json.loads(Path(sys.argv[1]).read_text()), where="test")
    run, after, most = Path(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    # A picture, drawn now and then, would fill the file of metrics before the tensors' one.
    MetricsWriter.image = lambda *_: None
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)  # a write beyond the limit is an OSError then
    try:
        for event in train(config, run):
            if isinstance(event, UpdateReport) and event.update == after:
                before = checkpoint_steps(run)[-1]
                resource.setrlimit(resource.RLIMIT_FSIZE, (most, resource.RLIM_INFINITY))
    except CheckpointError as error:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY,) * 2)
        record = {"what": error.what, "where": error.where, "remedy": error.remedy}
        print(json.dumps({**record, "before": before, "present": checkpoint_steps(run)}))
"""


def test_the_run_goes_on_when_there_is_space(
    tiny: Callable[..., RunConfig], reference: Outcome, tmp_path: Path
) -> None:
    config, run = tmp_path / "config.json", tmp_path / "run"
    config.write_text(tiny().model_dump_json())
    command = [sys.executable, "-c", textwrap.dedent(FILLING), str(config), str(run)]
    ended = subprocess.run([*command, "13", "20000"], capture_output=True, text=True, timeout=100)
    assert ended.returncode == 0, ended.stderr
    assert "Traceback" not in ended.stderr, ended.stderr + ended.stdout
    error = json.loads(ended.stdout)
    assert error["what"].startswith("the checkpoint of step 13 could not be written")
    assert "File too large" in error["what"]
    assert Path(error["where"]).name == "step-000013"
    assert "ree disk space" in error["remedy"]
    assert "resume the run" in error["remedy"]
    found = load_checkpoint(run)
    assert found.warnings == ()
    assert found.step == error["before"] == error["present"][-1]
    events = list(train(tiny(), run, resume=True))
    assert isinstance(events[-1], Finished)
    Outcome.read(run).assert_equals(reference)
    assert read_status(str(run)).state == "finished"
    logged = [event["event"] for event in parse_events((run / EVENTS_FILE).read_bytes())]
    assert logged[-1] == "run_finished"
