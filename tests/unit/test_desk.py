"""What a driver says to a worker that has just been given its job."""

from __future__ import annotations

import socket
from contextlib import closing

from holdfast.core.placement import Place
from holdfast.wire import Assigned, Channel, Met, Noticed
from holdfast.worker.entry import Desk
from holdfast.worker.job import Job, pack


def test_a_notice_that_comes_while_a_job_is_unpacked_is_not_lost() -> None:
    job = Job(
        task=b"",
        place=Place(0, 1, 0, 1, 0, "node-0"),
        run_name="run",
        run_id="id",
        attempt=1,
        store={},
    )
    ours, theirs = socket.socketpair()
    with closing(Channel(ours)) as driver:
        desk = Desk(Channel(theirs), lambda: None)
        notice = Noticed(7.0, {"node-0": [0]})
        for message in (Assigned(pack(job)), notice, Met(1)):
            driver.send(message)
        given = desk.next_job()
        assert given is not None
        desk.conversation.answer("meeting", 1)  # so what was said before it was heard

        context = desk.begin(given)

        assert context.notice() == notice
        desk.conversation.end()
