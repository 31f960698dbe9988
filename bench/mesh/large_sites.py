#!/usr/bin/env python3
"""Prints a large sites file: SITES sites with one host each, PAIRS random pairs measured in both directions, and
BOTTLENECKS bottlenecks that carry one load at a time and that the sites share. The same arguments give the same file."""
import argparse
import random

arguments = argparse.ArgumentParser(description=__doc__)
arguments.add_argument("--sites", type=int, default=1000)
arguments.add_argument("--pairs", type=int, default=1000)
arguments.add_argument("--bottlenecks", type=int, default=50)
arguments.add_argument("--interval", default="6h")
arguments.add_argument("--seed", type=int, default=1)
given = arguments.parse_args()

draw = random.Random(given.seed)
print('name = "large"')
for site in range(given.sites):
    address = f"198.18.{site // 250}.{site % 250 + 1}"
    print(f'[[site]]\nname = "s{site}"\naddress = "{address}"\nrate = "10gbit"')
for bottleneck in range(given.bottlenecks):
    sites = ", ".join(f'"s{site}"' for site in range(bottleneck, given.sites, given.bottlenecks))
    print(f'[[bottleneck]]\nname = "uplink{bottleneck}"\ncapacity = "10gbit"\nsites = [{sites}]')
pairs = set()
while len(pairs) < given.pairs:
    pairs.add(tuple(sorted(draw.sample(range(given.sites), 2))))
listed = ", ".join(f'["s{first}", "s{second}"]' for first, second in sorted(pairs))
print(f'[[group]]\nname = "pairs"\nkind = "list"\npairs = [{listed}]')
print(f'[[test]]\nname = "goodput"\nkind = "load"\ngroup = "pairs"\ninterval = "{given.interval}"\nbytes = "1GB"')
