"""Clusters as they are: one that checks tokens, one that does not, and one started here."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray
from marked import wait_until
from ray_nodes import Nodes, forget_token, free_port, new_token

from rss_rl.cluster.auth import Answer, ask_dashboard, ask_head, check, find_token
from rss_rl.cluster.connection import ClusterInfo, connect
from rss_rl.errors import ClusterError

pytestmark = pytest.mark.timeout(120)


@pytest.fixture(scope="module")
def guarded() -> Iterator[Nodes]:
    nodes = Nodes(new_token())
    try:
        nodes.start_head(cpus=2, dashboard=True)
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(scope="module")
def open_() -> Iterator[Nodes]:
    nodes = Nodes(None)
    try:
        nodes.start_head(cpus=2, dashboard=True)
        yield nodes
    finally:
        nodes.close()


@pytest.fixture(autouse=True)
def nobodys_home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """No test sees or touches a token of the user, or a cluster of the environment."""
    for name in [name for name in os.environ if name.startswith("RAY_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("RAY_AUTH_TOKEN", "")  # so that it is put back
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("RAY_AUTH_MODE", "token")
    forget_token()
    yield tmp_path
    ray.shutdown()


@pytest.fixture
def token(guarded: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
    """The right one, at hand."""
    monkeypatch.setenv("RAY_AUTH_TOKEN_PATH", str(guarded.token_path))
    forget_token()


def use(info: ClusterInfo) -> int:
    """The id of a worker's process; proves that the cluster computes."""
    return int(ray.get(ray.remote(lambda: os.getpid()).remote(), timeout=90))


def test_no_call_starts_a_cluster_by_itself() -> None:
    late = "import rss_rl.cluster.connection, ray; ray.put(1)"
    done = subprocess.run([sys.executable, "-c", late], capture_output=True, text=True)
    assert "Ray has not been started yet" in done.stderr


class TestOneStartedHere:
    """Guarded, small, and gone without remains."""

    def test_it_is_guarded_and_leaves_nothing(
        self,
        nobodys_home: Path,
        capfd: pytest.CaptureFixture[str],
        monkeypatch: pytest.MonkeyPatch,
    ) -> None:
        shared = set(os.listdir("/dev/shm"))
        monkeypatch.setenv("RAY_ADDRESS", "127.0.0.1:1")  # which 'local' does not heed
        info = connect("local", cores=3)
        worker = use(info)
        assert info.how == "started"
        assert os.getpriority(os.PRIO_PROCESS, worker) == os.nice(0)
        assert ask_head(info.address).kind == "guarded"
        assert ask_head(info.address, find_token()).kind == "open"
        resources = ray.cluster_resources()
        assert resources["CPU"] == max(3, os.cpu_count() or 1)
        assert resources["object_store_memory"] <= 512 * 2**20
        ray.shutdown()
        assert wait_until(lambda: not Path(f"/proc/{worker}").exists(), 10)
        assert ask_head(info.address).kind == "silent"
        assert set(os.listdir("/dev/shm")) <= shared
        assert not (nobodys_home / ".ray").exists()  # its token is this process's
        assert "".join(capfd.readouterr()) == ""  # nor any chatter of Ray's

    def test_one_that_ray_left_open_is_ended(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr("rss_rl.cluster.connection.ask_head", lambda _: Answer("open"))
        with pytest.raises(ClusterError, match="started a cluster that checks no token"):
            connect()
        assert not ray.is_initialized()


class TestJoining:
    """Only where a token is checked, and never for ever."""

    @pytest.mark.usefixtures("token")
    def test_with_the_token(self, guarded: Nodes) -> None:
        info = connect(guarded.address)
        try:
            assert info.how == "joined"
            assert not info.notes
            use(info)
        finally:
            ray.shutdown()
        assert not ray.is_initialized()
        assert ask_head(guarded.address).kind == "guarded"  # it lives on

    @pytest.mark.usefixtures("token")
    def test_signals_stay_ours(self, guarded: Nodes) -> None:
        """Ray puts a handler of its own on SIGTERM, under which a run dies without a checkpoint."""
        heard = []

        def ours(number: int, _: object) -> None:
            heard.append(number)

        before = signal.signal(signal.SIGTERM, ours)
        try:
            connect(guarded.address)
            kept = signal.getsignal(signal.SIGTERM) is ours
            if kept:  # else it would end this process, and nobody would end the clusters
                os.kill(os.getpid(), signal.SIGTERM)
            ray.shutdown()
        finally:
            signal.signal(signal.SIGTERM, before)
        assert kept
        assert heard == [signal.SIGTERM]

    def test_without_a_token(self, guarded: Nodes) -> None:
        with pytest.raises(ClusterError, match=r"requires a token.*~/\.ray/auth_token"):
            connect(guarded.address)

    def test_with_a_wrong_token(self, guarded: Nodes, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("RAY_AUTH_TOKEN", "of-another-cluster")
        with pytest.raises(ClusterError, match="refuses the token of RAY_AUTH_TOKEN") as caught:
            connect(guarded.address)
        assert "of-another-cluster" not in str(caught.value)

    def test_an_open_one_is_refused_fast(self, open_: Nodes) -> None:
        began = time.monotonic()
        with pytest.raises(ClusterError, match="checks no token.*RAY_AUTH_MODE=disabled"):
            connect(open_.address)
        assert time.monotonic() - began < 3
        assert not ray.is_initialized()

    @pytest.mark.usefixtures("token")
    def test_a_token_at_hand_does_not_make_an_open_one_safe(
        self, open_: Nodes, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        with pytest.raises(ClusterError, match="checks no token"):
            connect(open_.address)
        monkeypatch.setenv("RAY_AUTH_MODE", "disabled")
        forget_token()
        info = connect(open_.address)
        use(info)
        assert "checks no token" in info.notes[0]

    def test_nobody_answers(self) -> None:
        began = time.monotonic()
        with pytest.raises(ClusterError, match="no Ray cluster answered within 1 s"):
            connect(f"127.0.0.1:{free_port()}", timeout_s=1)
        assert time.monotonic() - began < 5

    @pytest.mark.parametrize("address", ["http://head:8265", "ray://head:10001", "auto"])
    def test_not_the_address_of_a_head(self, address: str) -> None:
        with pytest.raises(ClusterError, match="not the address of a head.*submit"):
            connect(address)


class TestDashboard:
    """Asked the same way."""

    @pytest.mark.usefixtures("token")
    def test_what_may_be_used(self, guarded: Nodes, open_: Nodes) -> None:
        assert ask_dashboard(guarded.dashboard).kind == "guarded"
        assert check(ask_dashboard, guarded.dashboard, timeout_s=1) == find_token()
        with pytest.raises(ClusterError, match="checks no token"):
            check(ask_dashboard, open_.dashboard, timeout_s=1)

    @pytest.mark.parametrize("mode", ["token", "disabled"])
    def test_the_wrong_port(
        self, guarded: Nodes, mode: str, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """Neither is taken for the other, and what answers strangely is never trusted."""
        monkeypatch.setenv("RAY_AUTH_MODE", mode)
        head, dashboard = f"http://{guarded.address}", guarded.dashboard.removeprefix("http://")
        with pytest.raises(ClusterError, match="not a Ray cluster"):
            check(ask_dashboard, head, timeout_s=1)
        with pytest.raises(ClusterError, match="no Ray cluster answered"):
            check(ask_head, dashboard, timeout_s=1)
