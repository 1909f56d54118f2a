"""Answers for keys from a snapshot, with bloomfilter-py and nothing else.

Usage: snapshot.py URL KEYS_FILE
Prints one line of 0 and 1, a digit for each key.
"""

import sys
from urllib.request import urlopen

from bloomfilter import BloomFilter
from bloomfilter.funnel import StringFunnel


def main(url: str, keys_file: str) -> None:
    with urlopen(url) as response:
        bloom = BloomFilter.loads(response.read(), funnel=StringFunnel())
    with open(keys_file, encoding="utf-8") as lines:
        keys = [line.rstrip("\n") for line in lines]
    print("".join("1" if bloom.might_contain(key) else "0" for key in keys))


if __name__ == "__main__":
    main(*sys.argv[1:])
