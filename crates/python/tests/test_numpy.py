"""Arrays of numpy: the same keys as objects of Python."""

import subprocess
import sys
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

import umbel


@pytest.mark.parametrize(
    "array",
    [
        np.arange(-500, 100_000),
        np.arange(1_000, dtype="<i4"),
        np.arange(1_000, dtype=">i8"),
        np.array([0, 1, 2**63, 2**64 - 1], dtype=np.uint64),
        np.array([b"a", b"bc", b"", b"\x00\xff"]),
        np.array(["a", "\u00fc\u4e2d", "\U0001f600", ""]),
        np.array(["a", "\u00fc"]).astype(">U5"),
        np.array(["a", b"b", 7], dtype=object),
        np.arange(1_000)[::-3],
        np.array([], dtype=np.int64),
        np.zeros(3, dtype="S0"),
    ],
)
def test_arrays_are_lists_of_the_same_keys(array: NDArray[Any]) -> None:
    filter = umbel.Filter(200_000, 1e-6)
    new = filter.add_many(array)
    assert isinstance(new, np.ndarray) and new.dtype == np.bool_ and new.shape == array.shape
    keys = array.tolist()
    assert new.tolist() == umbel.Filter(200_000, 1e-6).add_many(keys)
    assert all(filter.contains_many(keys))
    found = filter.contains_many(array)
    assert isinstance(found, np.ndarray) and found.all()
    assert filter.digest() == filled(keys).digest()
    assert all(key in filter for key in array)
    counting = umbel.CountingFilter(200_000, 1e-6)
    counting.update(array)
    assert counting.remove_many(array).all()
    found[:] = False


def filled(keys: list[Any]) -> umbel.Filter:
    filter = umbel.Filter(200_000, 1e-6)
    filter.update(keys)
    return filter


@pytest.mark.parametrize(
    "array",
    [np.zeros(3), np.zeros(3, dtype=bool), np.zeros((2, 2), dtype=int), np.array(5), np.array(["2026-01-01"], "M8[D]")],
)
def test_arrays_of_other_things_are_refused(array: NDArray[Any]) -> None:
    with pytest.raises((TypeError, ValueError), match="array of keys"):
        umbel.Filter(100).update(array)


def test_half_of_a_surrogate_pair_is_no_text() -> None:
    array = np.array([ord("a"), 0xD800, 0x110000], dtype="<u4").view("<U1")
    with pytest.raises(ValueError, match="the key at 1"):
        umbel.Filter(100).update(array)


def test_numpy_is_not_needed() -> None:
    program = """
import sys
sys.modules["numpy"] = None
import umbel
filter = umbel.Filter(100)
assert filter.add_many(["a", b"b", 3]) == [True] * 3 and filter.contains_many(["a", "c"]) == [True, False]
"""
    subprocess.run([sys.executable, "-c", program], check=True)
