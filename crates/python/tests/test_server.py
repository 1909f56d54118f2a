"""A client and replicas with a real server."""

import pickle
import threading
import time
from pathlib import Path
from typing import Any, Callable

import numpy as np
import pytest

import umbel
from umbel import Answer, Client, Replica

KEYS = [f"https://example.org/{number}" for number in range(1_000)]


def until(what: Callable[[], bool], seconds: float = 20) -> None:
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def test_a_client_does_all_that_the_server_can(client: Client, name: str) -> None:
    made = client.create(name, 100_000, 0.001, kind="counting", family=None)
    assert made["name"] == name and made["kind"] == "counting"
    assert client.add(name, KEYS) == [True] * 1_000
    assert client.add(name, [KEYS[0], b"\xff\x00", 7]) == [False, True, True]
    assert client.add(name, np.array([7, 8])) == [False, True]
    assert client.check(name, [KEYS[0], b"\xff\x00", 8, "none"]) == [Answer.MAYBE] * 3 + [Answer.ABSENT]
    assert client.check(name, KEYS, after=client.position, read="strong") == [Answer.MAYBE] * 1_000
    assert client.check(name, []) == [] and client.position
    assert client.remove(name, [KEYS[0]]) == [True]
    assert client.verify(name, [KEYS[0], KEYS[1], b"none"]) == [1, 1, 0]
    assert client.describe(name)["items"] > 0
    assert name in [filter["name"] for filter in client.list("python")]
    assert client.resize(name, capacity=200_000)["capacity"] == 200_000
    first = client.publish(name)["number"]
    client.add(name, ["later"])
    second = client.publish(name)["number"]
    assert client.rollback(name, first)["current"] == first
    assert client.rollback(name, None)["current"] == second
    assert [version["number"] for version in client.versions(name)["versions"]] == [first, second]
    assert client.replicas(name)
    client.clear(name)
    assert client.check(name, KEYS[:2]) == [Answer.ABSENT] * 2
    client.drop(name)
    with pytest.raises(umbel.RefusedError) as refused:
        client.describe(name)
    assert refused.value.status == 404 and refused.value.code == "not_found"


def test_more_keys_than_a_request_has(client: Client, name: str) -> None:
    client.create(name, 100_000)
    keys = np.arange(25_000)
    assert len(client.add(name, keys)) == 25_000
    assert set(client.check(name, keys)) == {Answer.MAYBE}
    client.add(name, ["x" * 3_000_000, "y" * 3_000_000])


def test_snapshots_are_filters(client: Client, name: str) -> None:
    client.create(name, 10_000, growth=1)
    client.add(name, KEYS)
    native = umbel.Filter.from_bytes(client.snapshot(name))
    guava = umbel.Filter.from_guava(client.snapshot(name, "guava"))
    version = client.publish(name)["number"]
    older = umbel.Filter.from_bytes(client.snapshot(name, version=version))
    for filter in [native, guava, older]:
        assert all(filter.contains_many(KEYS)) and "none" not in filter
    with pytest.raises(umbel.RefusedError):
        client.snapshot(name, "gzip")  # type: ignore[arg-type]


def test_what_a_client_is_told_wrong(client: Client, name: str, url: str) -> None:
    with pytest.raises(umbel.RefusedError):
        client.create(name, 0)
    with pytest.raises(umbel.RefusedError, match="colour"):
        client.create(name, 10, colour="red")
    with pytest.raises(TypeError):
        client.add(name, "one key")
    client.create(name, 10, growth=1)
    with pytest.raises(umbel.RefusedError):
        client.create(name, 10)
    with pytest.raises(umbel.RefusedError):
        client.add(name, KEYS)
    with pytest.raises(umbel.RefusedError, match="counting"):
        client.remove(name, KEYS)
    for wrong in ["", "127.0.0.1:1", "ftp://a", "http://a:b@c"]:
        with pytest.raises(ValueError):
            Client(wrong)
    with pytest.raises(ValueError):
        Client(url, timeout=-1)
    with pytest.raises(umbel.UnreachableError):
        Client("http://127.0.0.1:9").list()
    assert isinstance(umbel.RefusedError("a"), umbel.Error)


@pytest.mark.parametrize("strategy", ["pull", "push", "notify", "delta", "window"])
def test_replicas_follow(client: Client, url: str, name: str, strategy: Any, tmp_path: Path) -> None:
    client.create(name, 100_000, growth=1)
    client.add(name, KEYS)
    client.publish(name)
    with Replica(url, name, strategy, interval=0.2, folder=tmp_path / "copy", labels={"test": "yes"}) as replica:
        assert replica.contains(KEYS[0]) is Answer.MAYBE and KEYS[1] in replica
        assert replica.contains("none") is Answer.ABSENT and "none" not in replica
        assert replica.contains_many([KEYS[0], "none"]) == [Answer.MAYBE, Answer.ABSENT]
        client.add(name, ["from elsewhere"])
        if strategy == "notify":
            client.publish(name)
        until(lambda: "from elsewhere" in replica)
        replica.add("from here")
        replica.add_many(np.array([5, 6]))
        assert "from here" in replica and replica.contains_many(np.array([5, 7])) == [Answer.MAYBE, Answer.ABSENT]
        position = replica.flush(timeout=20)
        assert client.check(name, ["from here", 5], after=position) == [Answer.MAYBE] * 2
        if strategy in ("push", "delta", "window"):
            client.add(name, ["once more"])
            replica.reached(client.position, timeout=20)
            assert "once more" in replica
        status = replica.status()
        assert status["filter"] == name and status["spooled_keys"] == 0 and status["items"] >= 1_000
        assert replica.age is not None and replica.age < 20 and not replica.stale
        assert repr(replica).startswith("Replica(filter=")
    replica.close()
    with pytest.raises(umbel.ClosedError):
        replica.add("too late")
    with Replica(url, name, strategy, folder=tmp_path / "copy") as again:
        until(lambda: "from here" in again)


def test_strong_replicas_switch_together(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000, growth=1)
    client.add(name, KEYS)
    client.publish(name)
    one, other = Replica(url, name, "strong"), Replica(url, name, "strong")
    published = client.publish(name, strong=True)
    assert published["acknowledged"] == 2
    until(lambda: one.contains(KEYS[0]) is Answer.MAYBE and other.contains(KEYS[0]) is Answer.MAYBE)
    client.add(name, ["later"])
    assert one.contains("later") is not Answer.MAYBE
    client.publish(name, strong=True, timeout=20)
    until(lambda: one.contains("later") is Answer.MAYBE and other.contains("later") is Answer.MAYBE)
    until(lambda: one.contains_with_position("later")[0] is Answer.MAYBE)
    assert one.contains_with_position("later")[1] != ""
    one.close()
    other.close()


def test_replicas_of_counting_filters_forget(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000, kind="counting", growth=1)
    with Replica(url, name) as replica:
        replica.add_many(KEYS)
        replica.flush(20)
        replica.remove(KEYS[0])
        replica.remove_many(KEYS[1:3])
        replica.reached(replica.flush(20), 20)
        assert replica.contains_many(KEYS[:4]) == [Answer.ABSENT] * 3 + [Answer.MAYBE]


def test_replicas_go_back_and_on(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000, growth=1)
    client.publish(name)
    with Replica(url, name, "pull", interval=0.1) as replica:
        client.add(name, ["new"])
        until(lambda: "new" in replica)
        replica.roll_back()
        assert "new" not in replica and replica.status()["held"]
        replica.resume()
        until(lambda: "new" in replica)


def test_a_copy_that_is_too_old_does_not_say_absent(client: Client, url: str, name: str, tmp_path: Path) -> None:
    client.create(name, 10_000, growth=1)
    client.add(name, ["a"])
    with Replica(url, name, folder=tmp_path, or_urls=["http://127.0.0.1:9"]) as replica:
        until(lambda: "a" in replica)
    # A folder belongs to one filter, of a deployment that was met at these addresses.
    for other_url, other_name in [("http://127.0.0.1:10", name), (url, name + "-other")]:
        with pytest.raises(ValueError, match="folder of its own"):
            Replica(other_url, other_name, folder=tmp_path)
    # No server answers there: the copy of the folder does.
    for when_stale, answer in [("unknown", Answer.UNKNOWN), ("maybe", Answer.MAYBE)]:
        cut_off = Replica(
            "http://127.0.0.1:9", name, folder=tmp_path, stale_after=0.01, when_stale=when_stale  # type: ignore[arg-type]
        )
        assert cut_off.contains("a") is Answer.MAYBE and cut_off.contains("none") is answer
        assert cut_off.contains_many(["none", "a"]) == [answer, Answer.MAYBE]
        assert "none" in cut_off, "only what is certain is not in it"
        assert cut_off.stale
        cut_off.add("kept")
        with pytest.raises(TimeoutError):
            cut_off.flush(timeout=0.2)
        cut_off.close(timeout=0.1)
    with Replica(url, name, folder=tmp_path) as back:
        back.flush(20)
        assert client.check(name, ["kept"]) == [Answer.MAYBE]


def test_keys_that_would_be_lost_are_an_error(client: Client, url: str, name: str) -> None:
    client.create(name, 10_000, growth=1)
    replica = Replica(url, name, "window", interval=60)
    replica.add("a")
    with pytest.raises(umbel.Error, match="did not reach the server"):
        replica.close(timeout=0)


def test_what_a_replica_is_told_wrong(client: Client, url: str, name: str) -> None:
    with pytest.raises(umbel.RefusedError):
        Replica(url, name)
    client.create(name, 10)
    with pytest.raises(ValueError, match="strategy"):
        Replica(url, name, "gossip")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="when_stale"):
        Replica(url, name, when_stale="never")  # type: ignore[arg-type]
    for wrong in [float("nan"), -1.0, float("inf")]:
        with pytest.raises(ValueError):
            Replica(url, name, interval=wrong)
    with pytest.raises(umbel.UnreachableError):
        Replica("http://127.0.0.1:9", name)
    with Replica(url, name) as replica:
        with pytest.raises(ValueError):
            replica.reached("nonsense")
        with pytest.raises(ValueError, match="counting"):
            replica.remove("a")
        with pytest.raises(TimeoutError):
            replica.reached("0:ffffffffffffffff", timeout=0.2)
        with pytest.raises(TypeError):
            replica.contains(None)  # type: ignore[arg-type]


def test_threads_share_a_replica(client: Client, url: str, name: str) -> None:
    client.create(name, 100_000, growth=1)
    with Replica(url, name) as replica:
        threads = [
            threading.Thread(target=lambda part=part: replica.add_many(f"{part} {key}" for key in range(500)))
            for part in range(4)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        position = replica.flush(20)
    keys = [f"{part} {key}" for part in range(4) for key in range(500)]
    assert set(client.check(name, keys, after=position)) == {Answer.MAYBE}


def test_answers() -> None:
    assert not Answer.ABSENT and Answer.MAYBE and Answer.UNKNOWN
    assert Answer.ABSENT != Answer.MAYBE and len({Answer.ABSENT, Answer.MAYBE, Answer.ABSENT}) == 2
    assert repr(Answer.ABSENT) == "Answer.ABSENT" and Answer.UNKNOWN.word == "unknown"
    assert pickle.loads(pickle.dumps(Answer.MAYBE)) is Answer.MAYBE
