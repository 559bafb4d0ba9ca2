"""Preemption notices, from loopback servers that answer as those of the clouds do."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Iterator

import pytest

from holdfast.control.host.preemption import (
    AwsNotices,
    AzureNotices,
    GcpNotices,
    Notice,
    NoticeSource,
    source_named,
)
from holdfast.errors import ConfigError
from tests.clocks import FakeClock
from tests.servers.metadata import MetadataServer

AT = 1_800_000_000.0  # a whole second, as clouds say times
ACTION = "/latest/meta-data/spot/instance-action"


@pytest.fixture
def server() -> Iterator[MetadataServer]:
    server = MetadataServer()
    yield server
    server.stop()


def clouds(url: str) -> list[NoticeSource]:
    return [AwsNotices(url, heeds_rebalance=True), GcpNotices(url), AzureNotices(url)]


# ---------------------------------------------------------------------- AWS


def test_a_spot_instance_learns_when_it_is_reclaimed(server: MetadataServer) -> None:
    aws = AwsNotices(server.url)
    assert aws.poll() is None

    server.reclaim_on_aws(AT)
    assert aws.poll() == Notice(AT, None, "AWS spot: terminate")
    assert aws.poll() == aws.poll(), "the same as long as it is the same"
    server.announce_nothing()
    assert aws.poll() is None


@pytest.mark.parametrize("action", ["stop", "hibernate"])
def test_an_instance_that_is_not_ended_but_stopped_is_gone_too(
    server: MetadataServer, action: str
) -> None:
    server.reclaim_on_aws(AT, action)

    assert AwsNotices(server.url).poll() == Notice(AT, None, f"AWS spot: {action}")


def test_one_token_serves_for_many_questions(server: MetadataServer) -> None:
    aws = AwsNotices(server.url)
    for _ in range(3):
        aws.poll()

    assert server.questions == ["PUT /latest/api/token", *[f"GET {ACTION}"] * 3]


def test_a_token_that_expired_is_replaced(server: MetadataServer) -> None:
    aws = AwsNotices(server.url)
    aws.poll()
    server.forget_tokens()
    server.reclaim_on_aws(AT)

    assert aws.poll() is not None


def test_where_tokens_are_not_to_be_had_it_goes_without(server: MetadataServer) -> None:
    server.gives_tokens = server.needs_token = False
    server.reclaim_on_aws(AT)

    assert AwsNotices(server.url).poll() is not None


def test_a_mere_recommendation_counts_only_for_who_wants_it(server: MetadataServer) -> None:
    server.recommend_rebalance_on_aws(AT)
    assert AwsNotices(server.url).poll() is None

    heeding = AwsNotices(server.url, heeds_rebalance=True)
    assert heeding.poll() == Notice(None, None, "AWS spot: rebalance recommendation")
    server.reclaim_on_aws(AT)
    assert heeding.poll() == Notice(AT, None, "AWS spot: terminate")


def test_a_notice_whose_time_cannot_be_read_is_still_one(server: MetadataServer) -> None:
    server.say(ACTION, '{"action": "terminate", "time": "soon"}')

    assert AwsNotices(server.url).poll() == Notice(None, None, "AWS spot: terminate")


# ---------------------------------------------------------------------- Google Cloud


def test_a_machine_of_google_has_half_a_minute_from_when_it_first_hears(
    server: MetadataServer,
) -> None:
    clock = FakeClock(500.0)
    gcp = GcpNotices(server.url, clock)
    assert gcp.poll() is None

    server.preempt_on_gcp()
    assert gcp.poll() == Notice(530.0, None, "Google Cloud: preempted")
    clock.time += 10
    assert gcp.poll() == Notice(530.0, None, "Google Cloud: preempted")
    server.announce_nothing()
    assert gcp.poll() is None
    server.preempt_on_gcp()
    assert gcp.poll() == Notice(540.0, None, "Google Cloud: preempted")


# ---------------------------------------------------------------------- Azure


@pytest.mark.parametrize(("kind", "reason"), [("Preempt", "preempted"), ("Terminate", "deleted")])
def test_a_machine_of_azure_learns_when_it_goes(
    server: MetadataServer, kind: str, reason: str
) -> None:
    azure = AzureNotices(server.url)
    assert azure.poll() is None

    server.schedule_on_azure(kind, AT, ("GPU-VM-3",))
    assert azure.poll() == Notice(AT, None, f"Azure: {reason}")


def test_events_that_pass_by_are_not_notices(server: MetadataServer) -> None:
    server.schedule_on_azure("Freeze", AT, ("gpu-vm-3",))

    assert AzureNotices(server.url).poll() is None


def test_events_of_other_machines_of_the_scale_set_are_theirs(server: MetadataServer) -> None:
    server.schedule_on_azure("Preempt", AT, ("gpu-vm-1", "gpu-vm-2"))

    assert AzureNotices(server.url).poll() is None


def test_a_machine_that_does_not_know_its_name_takes_every_event_for_its_own(
    server: MetadataServer,
) -> None:
    server.azure_name = ""
    server.schedule_on_azure("Preempt", AT, ("gpu-vm-1",))

    assert AzureNotices(server.url).poll() is not None


def test_an_event_that_has_started_is_due_now(server: MetadataServer) -> None:
    clock = FakeClock(500.0)
    azure = AzureNotices(server.url, clock)
    server.schedule_on_azure("Preempt", None, ("gpu-vm-3",), status="Started")

    assert azure.poll() == Notice(500.0, None, "Azure: preempted")
    clock.time += 10
    assert azure.poll() == Notice(500.0, None, "Azure: preempted")


def test_a_time_in_the_other_form_is_understood(server: MetadataServer) -> None:
    path, event = "/metadata/scheduledevents", '"EventType": "Preempt", "Resources": ["gpu-vm-3"]'
    server.say(path, f'{{"Events": [{{{event}, "NotBefore": "2027-01-15T08:00:00Z"}}]}}')

    assert AzureNotices(server.url).poll() == Notice(AT, None, "Azure: preempted")


# ---------------------------------------------------------------------- servers that are not well


def everything_announced(server: MetadataServer) -> None:
    server.reclaim_on_aws(AT)
    server.recommend_rebalance_on_aws(AT)
    server.preempt_on_gcp()
    server.schedule_on_azure("Preempt", AT, ("gpu-vm-3",))


@pytest.mark.parametrize("status", [301, 403, 404, 410, 429, 500, 503])
def test_a_server_that_refuses_has_announced_nothing(server: MetadataServer, status: int) -> None:
    everything_announced(server)
    assert all(source.poll() is not None for source in clouds(server.url))

    server.fault = status
    assert [source.poll() for source in clouds(server.url)] == [None] * 3


@pytest.mark.parametrize(
    "body", ["", "<html>log in</html>", "[]", "null", '{"action": "dance"}', '{"Events": [1, {}]}']
)
def test_an_answer_that_makes_no_sense_is_no_notice(server: MetadataServer, body: str) -> None:
    paths = [ACTION, "/latest/meta-data/events/recommendations/rebalance"]
    paths += ["/computeMetadata/v1/instance/preempted", "/metadata/scheduledevents"]
    for path in paths:
        server.say(path, body)

    assert [source.poll() for source in clouds(server.url)] == [None] * 3


@contextlib.contextmanager
def listener(answer: bytes | None) -> Iterator[str]:
    """A server that sends `answer` to every connection and hangs up; sends nothing if None."""
    held: list[socket.socket] = []

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = socket_.accept()
                held.append(connection)
                if answer is not None:
                    connection.recv(1 << 16)
                    connection.sendall(answer)
                    connection.close()

    with socket.create_server(("127.0.0.1", 0)) as socket_:
        thread = threading.Thread(target=accept, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{socket_.getsockname()[1]}"
        socket_.shutdown(socket.SHUT_RDWR)
        thread.join()
    for connection in held:
        connection.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",
        b"\x00\xff\xfe garbage\r\n\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\nTRUE",  # not Google's: no header says so
        b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 90\r\n\r\nTRUE",
    ],
)
def test_a_server_that_is_something_else_has_announced_nothing(answer: bytes) -> None:
    with listener(answer) as url:
        assert [source.poll() for source in clouds(url)] == [None] * 3


def test_a_server_that_never_answers_is_not_waited_for() -> None:
    with listener(None) as url:
        assert GcpNotices(url).poll() is None


def test_a_server_that_is_not_there_is_mentioned_once(
    server: MetadataServer, caplog: pytest.LogCaptureFixture
) -> None:
    url = server.url
    gone = MetadataServer()
    gone_url = gone.url
    gone.stop()
    for source in clouds(gone_url):
        for _ in range(3):
            assert source.poll() is None

    messages = [record.getMessage() for record in caplog.records]
    assert len(messages) == 3
    assert messages[0].startswith(
        f"no notices from AWS: the metadata server {gone_url[7:]} does not"
    )
    assert all(source.poll() is None for source in clouds(url))
    assert len(caplog.records) == 3, "a server with nothing to announce is well"


def test_no_proxy_stands_between_a_machine_and_its_metadata(
    server: MetadataServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    server.preempt_on_gcp()

    assert GcpNotices(server.url).poll() is not None


# ---------------------------------------------------------------------- configs


def test_sources_are_known_by_name_or_are_objects() -> None:
    class Ours:
        def poll(self) -> Notice | None:
            return None

    ours = Ours()

    assert source_named(ours) is ours
    assert isinstance(source_named("aws"), AwsNotices)
    assert isinstance(source_named("gcp"), GcpNotices)
    assert isinstance(source_named("azure"), AzureNotices)


@pytest.mark.parametrize("given", ["AWS", "ibm", "", None, 7, AwsNotices, object()])
def test_what_is_no_source_is_refused(given: object) -> None:
    with pytest.raises(
        ConfigError, match="is no source of preemption notices; the names are 'aws'"
    ):
        source_named(given)


@pytest.mark.parametrize("url", ["169.254.169.254", "https://x", "http://", "http://x:y", ""])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    with pytest.raises(ConfigError, match="a metadata server is reached over http"):
        AwsNotices(url)
