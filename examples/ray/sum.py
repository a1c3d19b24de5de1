"""Counts primes on all CPUs of the cluster with Ray."""

import collections
import socket

import ray

ray.init(address="auto")


@ray.remote
def primes(begin, end):
    found = sum(all(n % d for d in range(2, int(n**0.5) + 1)) for n in range(max(begin, 2), end))
    return socket.gethostname(), found


results = ray.get([primes.remote(n, n + 10_000) for n in range(0, 1_000_000, 10_000)])
print("primes below a million:", sum(found for _, found in results))
print("parts by host:", dict(collections.Counter(host for host, _ in results)))
