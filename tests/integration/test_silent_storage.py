"""Nobody at the endpoint: every call and every command says so soon, and begins nothing.

The limit is set small here; that the usual one is 12 s, and when the line comes, is tested with a
clock of the tests' own.
"""

from __future__ import annotations

import logging
import socket
import tempfile
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast import train, tune
from holdfast.cli import main
from holdfast.control.record.run_view import look
from holdfast.errors import EndpointWrong, StoreBusy
from holdfast.storage.locate import open_store
from tests.servers.proxy import Answer, FaultyProxy
from tests.servers.storage import S3Server

pytestmark = pytest.mark.filterwarnings("ignore:.*restore is deprecated:DeprecationWarning")


@pytest.fixture(autouse=True)
def short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_TIMEOUT_S", "0.5")


@pytest.fixture
def closed_port() -> str:
    """The address of a port where nobody listens."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        return f"http://127.0.0.1:{other.getsockname()[1]}"


@pytest.fixture
def silent_port() -> Iterator[str]:
    """The address of a server that takes every connection and never says a word."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen(50)
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@pytest.fixture
def busy_port() -> Iterator[str]:
    """The address of a proxy whose server is always away."""
    proxy = FaultyProxy("http://127.0.0.1:9")
    proxy.plan(Answer(503, "SlowDown"), times=None)
    yield proxy.url
    proxy.stop()


def at(endpoint: str) -> str:
    query = f"endpoint_override={endpoint}&region=us-east-1&access_key=me&secret_key=a-secret"
    return f"s3://bucket/runs?{query}"


def never() -> None:
    raise AssertionError("it was begun")


def of_trial(config: dict[str, float]) -> None:
    never()


def tuner(path: str) -> tune.Tuner:
    return tune.Tuner(of_trial, run_config=tune.RunConfig(storage_path=path, name="study"))


def trainer(path: str) -> train.DataParallelTrainer:
    return train.DataParallelTrainer(
        never, run_config=train.RunConfig(storage_path=path, name="run")
    )


def with_name(path: str) -> str:
    return path.replace("/runs?", "/runs/run?")


CALLS: dict[str, Callable[[str], object]] = {
    "train fit": lambda path: trainer(path).fit(),
    "train restore": lambda path: train.DataParallelTrainer.restore(with_name(path)),
    "train can_restore": lambda path: train.DataParallelTrainer.can_restore(with_name(path)),
    "tune fit": lambda path: tuner(path).fit(),
    "tune restore": lambda path: tune.Tuner.restore(with_name(path), of_trial),
    "tune can_restore": lambda path: tune.Tuner.can_restore(with_name(path)),
    "tune run": lambda path: tune.run(of_trial, storage_path=path, name="run"),
    "analysis": lambda path: tune.ExperimentAnalysis(with_name(path)),
    "result": lambda path: train.Result.from_path(with_name(path)),
}
COMMANDS = [["ls"], ["show"], ["logs"], ["verify"], ["gc"], ["gc", "--dry-run"]]


@pytest.mark.parametrize("call", CALLS.values(), ids=CALLS)
def test_a_call_raises_soon_and_begins_nothing(
    call: Callable[[str], object], closed_port: str
) -> None:
    with pytest.raises(StoreBusy) as caught:
        call(at(closed_port))

    assert closed_port in caught.value.message
    assert "a-secret" not in str(caught.value)
    assert "HOLDFAST_STORAGE_TIMEOUT_S" in (caught.value.hint or "")


@pytest.mark.parametrize("command", COMMANDS, ids=" ".join)
def test_a_command_says_soon_that_nobody_is_there(
    command: list[str], closed_port: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = at(closed_port) if command == ["ls"] else with_name(at(closed_port))

    with pytest.raises(SystemExit) as ended:
        main([*command, path])

    out, err = capsys.readouterr()
    assert ended.value.code == 3
    assert out == ""
    assert closed_port in err
    assert "a-secret" not in err


@pytest.mark.parametrize("name", ["train fit", "tune can_restore"])
def test_a_server_that_never_says_a_word_is_given_up(
    name: str, silent_port: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(StoreBusy) as caught:
        CALLS[name](at(silent_port))

    assert f"s3://bucket/runs/run at {silent_port} does not answer" in caught.value.message
    told = [one for one in caplog.messages if "does not answer" in one]
    assert len(told) == 1, told
    assert f"no answer from s3://bucket/runs/run at {silent_port} yet" in told[0]


def test_a_proxy_that_is_always_busy_is_given_up(busy_port: str) -> None:
    with pytest.raises(StoreBusy, match=r"503: SlowDown.*\(tried|does not answer"):
        trainer(at(busy_port)).fit()


def test_a_host_that_does_not_exist_is_an_error_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_TIMEOUT_S", "50")
    with pytest.raises(EndpointWrong, match=r"there is no host of that name \(tried once\)"):
        trainer(at("http://no-such-host.invalid:9000")).fit()


# ---------------------------------------------------------------------- in the middle of a run


def save_twice() -> None:
    for step in range(2):
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "model").write_text(str(step))
            train.report({"step": step}, checkpoint=train.Checkpoint.from_directory(folder))


class Outage(train.UserCallback):
    """Takes the server away after the first checkpoint, until people were told of it."""

    def __init__(self, proxy: FaultyProxy, told: threading.Event) -> None:
        self._proxy, self._told, self._is_over = proxy, told, False

    def after_report(self, run_context: object, metrics: object, checkpoint: object) -> None:
        if self._is_over:
            return
        self._is_over = True
        self._proxy.go_away()
        threading.Thread(target=self._come_back).start()

    def _come_back(self) -> None:
        self._told.wait()
        self._proxy.come_back()


class Telling(logging.Handler):
    """Notes what is logged, and sets an event when it is that storage does not answer."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []
        self.told = threading.Event()

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(record.getMessage())
        if "storage does not answer" in self.lines[-1]:
            self.told.set()


@pytest.mark.s3
def test_an_outage_in_the_middle_of_a_run_is_waited_out_and_told(
    s3_server: S3Server, new_folder: Callable[[], str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOLDFAST_STORAGE_TIMEOUT_S", "50")
    proxy = FaultyProxy(s3_server.url)
    storage = s3_server.uri("lab", f"silent/{new_folder()}", endpoint_override=proxy.url)
    telling = Telling()
    logger = logging.getLogger("holdfast.storage.contact")
    logger.addHandler(telling)
    try:
        result = train.DataParallelTrainer(
            save_twice,
            run_config=train.RunConfig(
                storage_path=storage, name="run", callbacks=[Outage(proxy, telling.told)]
            ),
        ).fit()
        assert result.metrics is not None and result.metrics["step"] == 1
        view = look(open_store(storage.replace("?", "/run?")))
        assert [kept.step for kept in view.record.usable()] == [2, 1]
        assert view.history.run.attempts == 1
    finally:
        logger.removeHandler(telling)
        proxy.stop()

    begins, *_, ends = telling.lines
    assert "connection refused; training goes on until it reports, and checkpoints wait" in begins
    assert "nothing after checkpoint_000000 is durable; retrying until it does" in begins
    assert ends.startswith("storage answers again, after ")
