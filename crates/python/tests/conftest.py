"""The server that `cargo xtask python` starts; without one, what needs it fails and is not skipped."""

import itertools
import os

import pytest

import umbel

_NUMBERS = itertools.count()


@pytest.fixture(scope="session")
def url() -> str:
    url = os.environ.get("UMBEL_URL")
    assert url, "UMBEL_URL names no server: run these tests by `cargo xtask python`"
    return url


@pytest.fixture
def client(url: str) -> umbel.Client:
    return umbel.Client(url)


@pytest.fixture
def name() -> str:
    """The name of a filter that nobody else has."""
    return f"python {next(_NUMBERS)} \u00fc/{os.getpid()}"
