"""The first signal is a request; afterwards the process is as it was."""

from __future__ import annotations

import os
import signal

import pytest

from rss_rl.api.interruption import Interruption


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_first_signal_is_noted(
    number: signal.Signals, code: int, capfd: pytest.CaptureFixture[str]
) -> None:
    with Interruption("stopping") as interruption:
        assert not interruption.asked()
        os.kill(os.getpid(), number)
        assert interruption.asked()
        assert capfd.readouterr().err == "\nstopping\n"
        assert interruption.exit_code == code


def test_handlers_come_back() -> None:
    before = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)]
    with Interruption("stopping") as interruption:
        os.kill(os.getpid(), signal.SIGTERM)
        assert interruption.asked()
    assert [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)] == before


def test_who_does_not_ask_is_interrupted() -> None:
    with pytest.raises(KeyboardInterrupt), Interruption("stopping", raises=True):
        signal.raise_signal(signal.SIGTERM)
