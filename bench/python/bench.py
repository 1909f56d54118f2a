"""Filters of PyPI beside Umbel's: what adding and looking up a key costs, one by one and in batches.

    pip install umbel rbloom pybloomfiltermmap3 fastbloom-rs pybloom-live numpy     # those that are missing are left out
    python bench.py --keys 1000000

Everybody gets the same list of str, an error rate of 0.001 and room for all keys. Rounds go in turns, so that what else the machine
does meets all alike; figures are medians, in nanoseconds a key, and ratios to Umbel's of the same row: over 1, Umbel is faster.
"""

import argparse
import gc
import importlib.metadata
import statistics
import time
from collections.abc import Callable, Iterator
from typing import Any

ERROR = 0.001

Operation = Callable[[Any, list[str]], object]


def add_each(filter: Any, keys: list[str]) -> None:
    add = filter.add
    for key in keys:
        add(key)


def look_for_each(filter: Any, keys: list[str]) -> None:
    for key in keys:
        key in filter


class Contender:
    """A library: how a filter is made, and its ways to do things. What it has no way for is done in a loop."""

    def __init__(self, package: str, make: Callable[[int], Any], add_batch: Operation, look_batch: Operation) -> None:
        self.name = f"{package} {importlib.metadata.version(package)}"
        self.make, self.add_batch, self.look_batch = make, add_batch, look_batch


def contenders(only: list[str]) -> Iterator[Contender]:
    import umbel

    yield Contender(
        "umbel",
        lambda keys: umbel.Filter(keys, ERROR),
        lambda filter, keys: filter.update(keys),
        lambda filter, keys: filter.contains_many(keys),
    )
    loaders: list[tuple[str, Callable[[], Contender]]] = [
        ("rbloom", rbloom),
        ("pybloomfiltermmap3", pybloomfiltermmap3),
        ("fastbloom-rs", fastbloom),
        ("pybloom-live", pybloom_live),
    ]
    for name, load in loaders:
        if only and name not in only:
            continue
        try:
            yield load()
        except (ImportError, importlib.metadata.PackageNotFoundError) as error:
            print(f"{name} is left out: {error}")


def rbloom() -> Contender:
    from rbloom import Bloom  # type: ignore[import-not-found]

    return Contender(
        "rbloom",
        lambda keys: Bloom(keys, ERROR),
        lambda filter, keys: filter.update(keys),
        lambda filter, keys: [key in filter for key in keys],
    )


def pybloomfiltermmap3() -> Contender:
    from pybloomfilter import BloomFilter  # type: ignore[import-not-found]

    return Contender(
        "pybloomfiltermmap3",
        lambda keys: BloomFilter(keys, ERROR),
        lambda filter, keys: filter.update(keys),
        lambda filter, keys: [key in filter for key in keys],
    )


def fastbloom() -> Contender:
    from fastbloom_rs import BloomFilter  # type: ignore[import-not-found]

    return Contender(
        "fastbloom-rs",
        lambda keys: BloomFilter(keys, ERROR),
        lambda filter, keys: filter.add_str_batch(keys),
        lambda filter, keys: filter.contains_str_batch(keys),
    )


def pybloom_live() -> Contender:
    from pybloom_live import BloomFilter  # type: ignore[import-not-found]

    return Contender(
        "pybloom-live",
        lambda keys: BloomFilter(keys, ERROR),
        add_each,
        lambda filter, keys: [key in filter for key in keys],
    )


def fresh(keys: int, start: int = 0) -> list[str]:
    """Keys that nobody has hashed yet: Python keeps the hash of a str, which is what some filters use."""
    return [f"https://example.org/{number}" for number in range(start, start + keys)]


def measure(everybody: list[Contender], keys: int, rounds: int) -> None:
    rows = ["add", "present", "absent", "add, batch", "present, batch", "absent, batch"]
    times: dict[tuple[str, str], list[float]] = {}
    for round in range(rounds):
        for contender in everybody[round % len(everybody) :] + everybody[: round % len(everybody)]:
            # One by one and in batches, each with a filter and keys of its own.
            for batch in [False, True]:
                filter, present, absent = contender.make(keys), fresh(keys), fresh(keys, keys)
                steps: list[tuple[str, Operation, list[str]]] = [
                    (rows[3 * batch], contender.add_batch if batch else add_each, present),
                    (rows[3 * batch + 1], contender.look_batch if batch else look_for_each, present),
                    (rows[3 * batch + 2], contender.look_batch if batch else look_for_each, absent),
                ]
                gc.disable()
                for row, operation, asked in steps:
                    begin = time.perf_counter()
                    operation(filter, asked)
                    took = (time.perf_counter() - begin) / keys * 1e9
                    times.setdefault((row, contender.name), []).append(took)
                gc.enable()
                del filter
    print(f"\n{keys:,} keys of str, nanoseconds a key, medians of {rounds} rounds\n")
    names = [contender.name for contender in everybody]
    print("| | " + " | ".join(names) + " |\n|" + " --- |" * (len(names) + 1))
    for row in rows:
        medians = [statistics.median(times[row, name]) for name in names]
        cells = [f"{medians[0]:.0f}"] + [f"{median:.0f} ({median / medians[0]:.2f})" for median in medians[1:]]
        print(f"| {row} | " + " | ".join(cells) + " |")


def errors(everybody: list[Contender], keys: int) -> None:
    print("\nmistakes in 200,000 absent keys, at capacity")
    for contender in everybody:
        filter = contender.make(keys)
        contender.add_batch(filter, fresh(keys))
        mistakes = sum(key in filter for key in fresh(200_000, keys))
        print(f"{contender.name}: {mistakes / 200_000:.5f}")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, nargs="+", default=[1_000_000, 10_000_000])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--only", nargs="+", default=[], help="rivals, if not all: pybloom-live takes minutes")
    arguments = parser.parse_args()
    everybody = list(contenders(arguments.only))
    for keys in arguments.keys:
        measure(everybody, keys, arguments.rounds)
    errors(everybody, 1_000_000)
