"""Processes that were forked, beside the one that they come from. Each is waited for: one that hangs is killed, and fails the test."""

import multiprocessing
import os
import signal
import time
from typing import Callable

import pytest

import umbel
from umbel import Answer, Client, Replica

PATIENCE = 30.0


def in_child(work: Callable[[], None]) -> int:
    """What a child ends with that does some work, or the negative number of the signal that ended it."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        finally:
            os._exit(code)
    end = time.monotonic() + PATIENCE
    while time.monotonic() < end:
        done, status = os.waitpid(child, os.WNOHANG)
        if done:
            return os.waitstatus_to_exitcode(status)
        time.sleep(0.02)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    raise AssertionError("the child hangs")


def test_a_child_has_clients_of_its_own(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000)
    for number in range(4):

        def work() -> None:
            own = Client(url, timeout=5.0)
            assert own.add(name, [f"child {number}"]) == [True]
            assert own.check(name, [f"parent {number}"]) == [Answer.MAYBE]

        assert client.add(name, [f"parent {number}"]) == [True]
        assert in_child(work) == 0
        assert client.check(name, [f"child {number}", "none"]) == [Answer.MAYBE, Answer.ABSENT]


def test_what_the_parent_opened_is_refused_in_the_child(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000, growth=1)
    replicas = [Replica(url, name)]
    replicas[0].add("before")

    def refused(call: Callable[[], object]) -> None:
        with pytest.raises(umbel.Error, match="open another one after the fork"):
            call()

    def work() -> None:
        refused(lambda: client.list())
        refused(lambda: client.snapshot(name))
        refused(lambda: replicas[0].contains("before"))
        refused(lambda: "before" in replicas[0])
        refused(lambda: replicas[0].contains_many(["before"]))
        refused(lambda: replicas[0].add("child"))
        refused(lambda: replicas[0].flush(1))
        refused(lambda: replicas[0].status())
        refused(lambda: replicas[0].age)
        refused(lambda: replicas[0].close())
        assert "another process" in repr(replicas[0])
        # It goes, and the parent's stays what it is.
        replicas.clear()
        with Replica(url, name) as own:
            own.add("from the child")
            own.flush(20)

    assert in_child(work) == 0
    with replicas[0] as replica:
        replica.add("after")
        position = replica.flush(20)
        keys = ["before", "from the child", "after"]
        assert client.check(name, keys, after=position) == [Answer.MAYBE] * 3


def child_adds(url: str, name: str, key: str) -> bool:
    return Client(url, timeout=5.0).add(name, [key])[0]


def test_a_pool_of_forked_processes(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000)
    with multiprocessing.get_context("fork").Pool(3) as pool:
        added = pool.starmap_async(child_adds, [(url, name, f"key {number}") for number in range(30)])
        for number in range(30):
            assert client.add(name, [f"meanwhile {number}"]) == [True]
        assert added.get(PATIENCE) == [True] * 30
    assert set(client.check(name, [f"key {number}" for number in range(30)])) == {Answer.MAYBE}


def test_parent_and_child_are_told_apart(client: Client, url: str, name: str) -> None:
    """Both open a replica after the fork, with the same chance behind them: they are two to the server all the same."""
    client.create(name, 10_000, kind="counting", growth=1)

    def work() -> None:
        with Replica(url, name) as own:
            own.add("both")
            own.flush(20)

    assert in_child(work) == 0
    work()
    assert client.verify(name, ["both"]) == [2]
