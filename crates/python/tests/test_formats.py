"""Filters of others: Guava's, read and written by bloomfilter-py, and RedisBloom's."""

import random
import struct
from pathlib import Path

import pytest
from bloomfilter import BloomFilter

import umbel

FIXTURES = Path(__file__).parents[3] / "fixtures"
KEYS = [f"item:{number}" for number in range(10_000)]
OTHERS = [f"other:{number}" for number in range(10_000)]


def test_bloomfilter_py_reads_what_we_wrote() -> None:
    ours = umbel.Filter(10_000, 0.01, layout="guava")
    ours.update(KEYS)
    theirs = BloomFilter.loads(ours.to_guava())
    assert all(theirs.might_contain(key) for key in KEYS)
    assert [theirs.might_contain(key) for key in OTHERS] == ours.contains_many(OTHERS)
    assert any(ours.contains_many(OTHERS)), "their mistakes are ours"


def test_we_read_what_bloomfilter_py_wrote() -> None:
    theirs = BloomFilter(10_000, 0.01)
    for key in KEYS:
        theirs.put(key)
    ours = umbel.Filter.from_guava(bytes(theirs.dumps()))
    assert ours.layout == "guava" and all(ours.contains_many(KEYS))
    assert [theirs.might_contain(key) for key in OTHERS] == ours.contains_many(OTHERS)
    assert ours.to_guava() == bytes(theirs.dumps())
    assert ours.capacity == pytest.approx(10_000, rel=0.1)


def test_we_read_what_guava_wrote() -> None:
    for path in (FIXTURES / "guava").glob("*.bin"):
        data = path.read_bytes()
        assert umbel.Filter.from_guava(data).to_guava() == data, path


def test_damaged_bytes_of_guava_are_refused() -> None:
    filter = umbel.Filter(1_000, layout="guava")
    data = filter.to_guava()
    for length in [0, 1, 5, 6, 7, len(data) - 1]:
        with pytest.raises(umbel.CorruptError):
            umbel.Filter.from_guava(data[:length])
    for head in [struct.pack(">bbi", 1, 5, words) for words in [0, -1, -(2**31)]] + [b"\x07\x05\x00\x00\x00\x01"]:
        with pytest.raises(umbel.CorruptError):
            umbel.Filter.from_guava(head + bytes(64))
    with pytest.raises(umbel.CorruptError, match="truncated"):
        umbel.Filter.from_guava(struct.pack(">bbi", 1, 5, 2**31 - 1) + bytes(64))
    with pytest.raises(umbel.UnsupportedError, match="layout blocked"):
        umbel.Filter(100).to_guava()


def test_chunks_of_redisbloom() -> None:
    filter = umbel.Filter(1_000, 0.01, layout="redisbloom")
    filter.update(KEYS)
    chunks = filter.to_redisbloom()
    assert [cursor for cursor, _ in chunks][0] == 1
    read = umbel.Filter.from_redisbloom(chunks)
    assert all(read.contains_many(KEYS)) and read.contains_many(OTHERS) == filter.contains_many(OTHERS)
    with pytest.raises(umbel.CorruptError):
        umbel.Filter.from_redisbloom(chunks[:-1])
    with pytest.raises(umbel.CorruptError):
        umbel.Filter.from_redisbloom([])
    with pytest.raises(umbel.UnsupportedError):
        umbel.Filter(100).to_redisbloom()
    chance = random.Random(3)
    for _ in range(300):
        with pytest.raises((umbel.Error, ValueError)):
            umbel.Filter.from_redisbloom([(1, chance.randbytes(chance.randrange(200)))])
