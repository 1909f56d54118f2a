"""Filters beside a set, which is always right."""

import copy
import gc
import math
import pickle
import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

import umbel

KEYS = [f"key {number} \u00e9" for number in range(20_000)]
OTHERS = [f"other {number}" for number in range(20_000)]


@pytest.mark.parametrize("family", ["murmur3", "xxh3", "redisbloom", "redisson"])
def test_a_filter_knows_what_a_set_knows(family: Any) -> None:
    filter, known = umbel.Filter(20_000, 0.01, family=family), set()
    for key in KEYS[:5_000]:
        filter.add(key)
        known.add(key)
    filter.update(KEYS[5_000:])
    known.update(KEYS[5_000:])
    assert all(key in filter and filter.contains(key) for key in known)
    assert all(filter.contains_many(KEYS))
    mistakes = sum(filter.contains_many(OTHERS))
    assert 0 < mistakes < 0.015 * len(OTHERS)
    assert [key in filter for key in OTHERS] == filter.contains_many(OTHERS)
    assert filter.items == pytest.approx(20_000, rel=0.05)
    assert filter.error_now == pytest.approx(0.01, rel=0.3)
    assert (filter.capacity, filter.error, filter.family, filter.layout) == (20_000, 0.01, family, "blocked")
    assert filter.bits % 512 == 0 and 0 < filter.fill < 1


def test_adds_say_what_was_new() -> None:
    filter = umbel.Filter(1_000)
    assert filter.add("a") and not filter.add("a")
    assert filter.add_many(["a", "b", "b"]) == [False, True, False]
    assert filter.add_many(key for key in ("b", "c")) == [False, True]
    assert filter.add_many(("d",)) == [True] and filter.add_many(()) == []
    assert filter.contains_many({"d": 1}) == [True]


def test_keys_are_their_bytes() -> None:
    filter = umbel.Filter(1_000, 1e-6)
    keys: list[str | bytes | int] = ["\u00fc", b"\x00\xff", "", 7, -1, 2**63]
    for key in keys:
        assert filter.add(key), key
    assert "\u00fc".encode() in filter and bytearray(b"\x00\xff") in filter and b"" in filter
    assert (7).to_bytes(8, "little") in filter and b"\xff" * 8 in filter and 2**64 - 1 in filter
    assert "7" not in filter and b"7" not in filter and 8 not in filter


class Index:
    def __index__(self) -> int:
        return 7


def test_what_is_no_key_is_refused() -> None:
    filter = umbel.Filter(1_000)
    assert filter.add(Index()) and 7 in filter
    for wrong in [None, 1.5, True, ["a"], object()]:
        with pytest.raises(TypeError, match="a key is str, bytes or int"):
            filter.add(wrong)  # type: ignore[arg-type]
        with pytest.raises(TypeError):
            wrong in filter  # type: ignore[operator]
        with pytest.raises(TypeError):
            filter.contains_many(["a", wrong])  # type: ignore[list-item]
    for wrong_number in [2**64, -(2**63) - 1, 10**100]:
        with pytest.raises(ValueError, match="eight bytes"):
            filter.add(wrong_number)
    for text in ["\ud800", "a\udfff"]:
        with pytest.raises(ValueError):
            filter.add(text)
        with pytest.raises(ValueError):
            filter.update(["b", text])
    for one in ["abc", b"abc", bytearray(b"abc")]:
        with pytest.raises(TypeError, match="many keys"):
            filter.update(one)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        filter.update(5)  # type: ignore[arg-type]


@pytest.mark.parametrize("capacity", [0, -1, 2**63, -(2**70), 10**12 + 1])
def test_capacities_out_of_range_are_refused(capacity: int) -> None:
    for kind in [umbel.Filter, umbel.CountingFilter]:
        with pytest.raises(ValueError, match="capacity"):
            kind(capacity)


@pytest.mark.parametrize("error", [0.0, 1.0, -0.1, math.nan, math.inf, 1e-300])
def test_error_rates_out_of_range_are_refused(error: float) -> None:
    with pytest.raises(ValueError, match="error rate"):
        umbel.Filter(100, error)


def test_other_arguments_that_make_no_sense_are_refused() -> None:
    with pytest.raises(ValueError, match="family"):
        umbel.Filter(100, family="md5")  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="layout"):
        umbel.Filter(100, layout="cuckoo")  # type: ignore[arg-type]
    with pytest.raises(ValueError):
        umbel.Filter(100, layout="guava", family="xxh3")
    with pytest.raises(ValueError, match="over the limit"):
        umbel.Filter(10**12, 1e-9)
    with pytest.raises(ValueError, match="counter_bits"):
        umbel.CountingFilter(100, counter_bits=5)  # type: ignore[arg-type]
    with pytest.raises(ValueError, match="secret"):
        umbel.Filter(100, family="keyed")
    with pytest.raises(ValueError, match="16"):
        umbel.Filter(100, secret=b"short")
    with pytest.raises(ValueError, match="secret"):
        umbel.Filter(100, family="xxh3", secret=bytes(16))
    with pytest.raises(TypeError):
        umbel.Filter("100")  # type: ignore[arg-type]


def test_counting_filters_forget() -> None:
    filter = umbel.CountingFilter(20_000, 0.001)
    filter.update(KEYS)
    assert isinstance(filter, umbel.Filter) and filter.counter_bits == 4
    half = len(KEYS) // 2
    assert all(filter.remove(key) for key in KEYS[:100])
    assert all(filter.remove_many(KEYS[100:half]))
    assert all(filter.contains_many(KEYS[half:]))
    assert sum(filter.contains_many(KEYS[:half])) < 50
    assert not filter.remove("never added") and filter.count("never added") == 0
    counted = umbel.CountingFilter(100, counter_bits=8)
    for _ in range(20):
        counted.add("often")
    assert counted.count("often") == 20
    assert umbel.CountingFilter(100).remove_many(["a"]) == [False]
    with pytest.raises(AttributeError):
        umbel.Filter(100).remove("a")  # type: ignore[attr-defined]


def test_unions_and_copies() -> None:
    ours, theirs = umbel.Filter(10_000), umbel.Filter(10_000)
    ours.update(KEYS[:3_000])
    theirs.update(KEYS[2_000:5_000])
    both = ours | theirs
    assert all(both.contains_many(KEYS[:5_000])) and "never" not in both
    assert ours.contains_many(KEYS[3_000:5_000]).count(True) < 50, "what was united is as it was"
    assert ours.common_items(theirs) == pytest.approx(1_000, abs=150)
    for copied in [ours.copy(), copy.copy(ours), copy.deepcopy(ours)]:
        assert copied.digest() == ours.digest()
        copied.add("only here")
        assert "only here" not in ours
    same = ours
    ours |= theirs
    assert ours is same and ours.digest() == both.digest()
    with pytest.raises(umbel.MismatchError, match="geometry"):
        both | umbel.Filter(20_000)
    with pytest.raises(umbel.MismatchError, match="family"):
        both | umbel.Filter(10_000, family="xxh3")
    with pytest.raises(TypeError):
        both | {"a"}  # type: ignore[operator]
    counted = umbel.CountingFilter(100)
    counted.add("a")
    twice = counted | counted
    assert isinstance(twice, umbel.CountingFilter) and twice.count("a") == 2


def test_keyed_filters_need_their_secret() -> None:
    filter = umbel.Filter(1_000, secret=b"0123456789abcdef")
    filter.add("a")
    assert filter.family == "keyed" and "a" in filter.copy()
    data = filter.to_bytes()
    assert "a" in umbel.Filter.from_bytes(data, b"0123456789abcdef")
    with pytest.raises((umbel.Error, ValueError)):
        umbel.Filter.from_bytes(data)
    with pytest.raises((umbel.Error, ValueError)):
        umbel.Filter.from_bytes(data, bytes(16))
    with pytest.raises(umbel.UnsupportedError, match="secret"):
        pickle.dumps(filter)


def test_filters_say_what_they_are() -> None:
    assert repr(umbel.Filter(1_000)) == "Filter(capacity=1000, error=0.001, family='murmur3', layout='blocked')"
    assert repr(umbel.CountingFilter(5)).startswith("CountingFilter(capacity=5")
    assert umbel.Filter.__doc__ and umbel.Filter.add.__doc__ and umbel.__version__


def test_threads_add_at_once() -> None:
    filter = umbel.Filter(100_000, 0.001)
    counting = umbel.CountingFilter(100_000, 0.001)

    def work(number: int) -> None:
        mine = [f"{number} {key}" for key in range(10_000)]
        filter.update(mine[:5_000])
        counting.update(mine)
        for key in mine[5_000:]:
            filter.add(key)
        counting.remove_many(mine[:5_000])

    threads = [threading.Thread(target=work, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    keys = [f"{number} {key}" for number in range(8) for key in range(10_000)]
    assert all(filter.contains_many(keys))
    assert all(counting.contains_many(key for key in keys if int(key.split()[1]) >= 5_000))


def test_a_batch_lets_other_threads_run() -> None:
    np = pytest.importorskip("numpy")
    filter, keys = umbel.Filter(20_000_000), np.arange(8_000_000)
    done = threading.Event()
    turns, longest = 0, 0.0

    def work() -> None:
        filter.update(keys)
        done.set()

    thread = threading.Thread(target=work)
    begin = time.perf_counter()
    thread.start()
    before = begin
    while not done.is_set():
        now = time.perf_counter()
        longest, before, turns = max(longest, now - before), now, turns + 1
    took = time.perf_counter() - begin
    thread.join()
    # With the lock held all the time, this thread would have been asleep from the beginning to the end.
    assert turns > 1_000 and longest < took / 2, (turns, longest, took)


def test_a_list_that_changes_while_it_is_read() -> None:
    filter, keys, stop = umbel.Filter(100_000), [f"{number}" for number in range(200_000)], threading.Event()

    def work() -> None:
        chance = random.Random(7)
        while not stop.is_set():
            del keys[chance.randrange(1_000, 150_000) :]
            gc.collect()
            keys.extend(f"{number}" for number in range(200_000 - len(keys)))

    thread = threading.Thread(target=work)
    thread.start()
    for _ in range(20):
        assert len(filter.add_many(keys)) <= 400_000
    stop.set()
    thread.join()


def test_files(tmp_path: Path) -> None:
    for filter in [umbel.Filter(10_000), umbel.CountingFilter(10_000), umbel.Filter(1_000, layout="redisbloom")]:
        filter.update(KEYS[:1_000])
        path = tmp_path / "a.umbel"
        filter.save(path)
        for read in [
            umbel.Filter.load(path),
            umbel.Filter.load(str(path)),
            umbel.Filter.from_bytes(filter.to_bytes()),
            pickle.loads(pickle.dumps(filter)),
        ]:
            assert type(read) is type(filter) and repr(read) == repr(filter)
            assert read.digest() == filter.digest() and all(read.contains_many(KEYS[:1_000]))
        assert [entry.name for entry in tmp_path.iterdir()] == ["a.umbel"], "nothing is left beside it"
    with pytest.raises(FileNotFoundError):
        umbel.Filter.load(tmp_path / "none")
    with pytest.raises(OSError):
        filter.save(tmp_path / "none" / "a")
    with pytest.raises(umbel.UnsupportedError, match="counters"):
        umbel.CountingFilter.from_bytes(umbel.Filter(10).to_bytes())


def test_bytes_that_are_wrong_are_refused() -> None:
    filter = umbel.Filter(1_000)
    filter.update(KEYS[:1_000])
    data = filter.to_bytes()
    for length in {0, 1, 7, 8, 40, len(data) // 2, len(data) - 1}:
        with pytest.raises((umbel.CorruptError, ValueError)):
            umbel.Filter.from_bytes(data[:length])
    chance = random.Random(1)
    for _ in range(300):
        damaged = bytearray(data)
        damaged[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
        with pytest.raises((umbel.Error, ValueError)):
            umbel.Filter.from_bytes(bytes(damaged))
    for _ in range(300):
        with pytest.raises((umbel.Error, ValueError)):
            umbel.Filter.from_bytes(data[:8] + chance.randbytes(chance.randrange(200)))
    with pytest.raises(TypeError):
        umbel.Filter.from_bytes("text")  # type: ignore[arg-type]
