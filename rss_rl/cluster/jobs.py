"""Jobs on a Ray cluster: submitted, watched and stopped through its dashboard, from any machine."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

import aiohttp
from ray.dashboard.utils import ray_address_to_api_server_url
from ray.exceptions import RayError
from ray.job_submission import JobSubmissionClient

from rss_rl.cluster.auth import find_token
from rss_rl.cluster.connection import ADDRESS_VARIABLE, quiet, token_mode
from rss_rl.cluster.probe import Checked, check, probe_dashboard, probe_gcs
from rss_rl.errors import ClusterError

_STORAGE = "rss-rl-storage"
_DASHBOARD_PORT = 8265
_OLDEST, _NEXT_MAJOR = (2, 59), 3
_POLL_S = 0.5
_RECONNECTIONS = 5
_OVERRIDES = (ADDRESS_VARIABLE, "RAY_API_SERVER_ADDRESS")


@dataclass(frozen=True)
class Job:
    """A job as the cluster knows it.

    name: its id; status: PENDING, RUNNING, SUCCEEDED, FAILED or STOPPED; message: Ray's about it
    storage: the storage path of its run, empty without one or if it is not a job of rss-rl
    """

    name: str
    status: str
    message: str
    storage: str

    @property
    def ended(self) -> bool:
        """Whether its status is final."""
        return self.status in ("SUCCEEDED", "FAILED", "STOPPED")

    @property
    def waits(self) -> bool:
        """Whether it has not started."""
        return self.status == "PENDING"


class JobBoard:
    """The jobs of one cluster. Every method raises ClusterError if the request fails.

    url: of its dashboard. version: of its Ray. guarded: whether it checks tokens.
    """

    def __init__(self, client: JobSubmissionClient, url: str, head: Checked) -> None:
        self._client = client
        self.url, self.version, self.guarded = url, head.version, head.guarded

    def submit(self, name: str, entrypoint: str, storage: str, **options: Any) -> None:
        """Submit a job.

        Args:
            name: its id, unused so far. entrypoint: a shell command.
            storage: the storage path of its run, if any; two jobs must not write to it at once.
            options: of `JobSubmissionClient.submit_job`.
        """
        for job in self.jobs() if storage else ():
            if job.storage == storage and not job.ended:
                raise ClusterError(
                    f"job {job.name} is training there already",
                    where=storage,
                    remedy=f"Watch it: rss-rl job logs {job.name}, or stop it: rss-rl job stop"
                    f" {job.name}",
                )
        with _refusals(self.url):
            self._client.submit_job(
                submission_id=name, entrypoint=entrypoint, metadata={_STORAGE: storage}, **options
            )

    def jobs(self) -> list[Job]:
        """All submitted jobs, in arbitrary order."""
        with _refusals(self.url):
            return [_job(details) for details in self._client.list_jobs() if details.submission_id]

    def job(self, name: str) -> Job:
        """One job."""
        with _refusals(self.url):
            return _job(self._client.get_job_info(name))

    def stop(self, name: str) -> None:
        """Stop a job with SIGTERM, and SIGKILL after a grace period. Does not wait."""
        with _refusals(self.url):
            self._client.stop_job(name)

    def wait(self, name: str, timeout_s: float, *, start: bool = False) -> Job:
        """The job once it has ended (`start`: or runs), or its state after `timeout_s`."""
        deadline = time.monotonic() + timeout_s
        while True:
            job = self.job(name)
            over = not job.waits if start else job.ended
            if over or time.monotonic() >= deadline:
                return job
            time.sleep(_POLL_S)

    def log(self, name: str) -> str:
        """The output of a job so far."""
        with _refusals(self.url):
            return str(self._client.get_job_logs(name))

    def follow(self, name: str, write: Callable[[str], object]) -> None:
        """Write the output of a job, piece by piece, until it ends."""
        shown, broken = 0, 0
        while True:
            before = shown
            shown, whole = asyncio.run(self._tail(name, write, shown))
            if whole and self.wait(name, _POLL_S).ended:  # Ray closes it once everything is sent
                if not shown:
                    write(self._whole_log(name))
                return
            if not whole:
                broken = 1 if shown > before else broken + 1
            if broken > _RECONNECTIONS:
                raise ClusterError(
                    "the connection to the job's output is lost; the job continues",
                    where=self.url,
                    remedy=f"Try again later: rss-rl job logs {name}",
                )
            time.sleep(_POLL_S)

    def _whole_log(self, name: str) -> str:
        """For a job that ended without output: its log, or why it cannot be fetched."""
        try:
            return self.log(name)
        except ClusterError as error:
            return f"The output cannot be fetched from the job's node: {error}\n"

    async def _tail(
        self, name: str, write: Callable[[str], object], shown: int
    ) -> tuple[int, bool]:
        """Write the log after the first `shown` characters; its length, and if all was fetched."""
        seen = 0
        try:
            async for text in self._client.tail_job_logs(name):
                fresh = text[max(0, shown - seen) :]
                seen += len(text)
                if fresh:
                    write(fresh)
        except (aiohttp.ClientError, OSError, RuntimeError):
            return max(seen, shown), False
        return max(seen, shown), True


def open_board(address: str | None, *, insecure: bool = False, timeout_s: float = 10.0) -> JobBoard:
    """The jobs of the cluster at `address` or RAY_ADDRESS.

    The cluster is first probed without and with the token, see `check`.

    Args:
        address: of the dashboard (http or https), of the head (host:port, or auto), or of its
            Ray client server (ray://), whose dashboard is assumed at port 8265.
        insecure: allow a cluster that checks no token.
        timeout_s: how long to wait for a response.

    Raises:
        ClusterError: no such cluster, it must not be used, or its Ray is too old or too new.
    """
    where = address or os.environ.get(ADDRESS_VARIABLE)
    if not where:
        raise ClusterError(
            "no cluster is named", remedy="Give --address http://HEAD:8265, or set RAY_ADDRESS"
        )
    url = dashboard_url(where, insecure=insecure, timeout_s=timeout_s)
    head = check(probe_dashboard, url, find_token(), insecure=insecure, timeout_s=timeout_s)
    numbers = tuple(int(part) for part in head.version.split(".")[:2])
    if not _OLDEST <= numbers < (_NEXT_MAJOR,):
        raise ClusterError(
            f"the cluster runs Ray {head.version}, rss-rl needs at least"
            f" {'.'.join(map(str, _OLDEST))} and less than {_NEXT_MAJOR}",
            where=url,
            remedy="Start the cluster with another version of Ray",
        )
    quiet()
    # A token must not be sent to a cluster that does not check it.
    token_mode("token" if head.guarded else "disabled")
    # Ray would prefer these variables to the address it is given.
    aside = {name: os.environ.pop(name) for name in _OVERRIDES if name in os.environ}
    try:
        with _refusals(url):
            return JobBoard(JobSubmissionClient(url), url, head)
    finally:
        os.environ.update(aside)


def dashboard_url(where: str, *, insecure: bool, timeout_s: float) -> str:
    """The http address of a cluster's dashboard; see `open_board`."""
    if where.startswith(("http://", "https://")):
        return where.rstrip("/")
    if where.startswith("ray://"):
        return f"http://{urlsplit(where).hostname}:{_DASHBOARD_PORT}"
    if where != "auto":
        head = check(probe_gcs, where, find_token(), insecure=insecure, timeout_s=timeout_s)
        token_mode("token" if head.guarded else "disabled")
    with _refusals(where):
        return str(ray_address_to_api_server_url(where))


def _job(details: Any) -> Job:
    return Job(
        name=str(details.submission_id),
        status=str(details.status.value),
        # Without the tail of the log, which Ray appends.
        message=str(details.message or "").partition(", last available logs")[0],
        storage=str((details.metadata or {}).get(_STORAGE, "")),
    )


@contextmanager
def _refusals(where: str) -> Iterator[None]:
    """Turns errors of Ray's client into ClusterErrors."""
    try:
        yield
    except (RayError, OSError, RuntimeError, ValueError) as error:
        text = " ".join(str(error).split()).rstrip(".")
        remedy = "Check that the cluster still runs and has a dashboard"
        if "413" in text or "too large" in text.lower():
            remedy = "The code is too large for this cluster: raise the limit of its proxy"
        elif "does not exist" in text:
            remedy = "List the jobs: rss-rl job list"
        raise ClusterError(
            text[:400] or type(error).__name__, where=where, remedy=remedy
        ) from error
