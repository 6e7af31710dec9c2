"""Something worse lies behind the first finding, or beside it."""

from __future__ import annotations

import json

from .fault import Came, Place, Said, Wrong, fault

__all__: list[str] = []

_WALK = ("--engine", "walk", "--kernels", "none", "--seed", "1")


def _leads_to(place: Place, said: Said, *properties: str) -> Came:
    """A finding says that it leads to one of `properties`, with a counterexample that fails from outside."""
    said.must(1)
    for finding in place.summary()["findings"]:
        harm = finding["leads_to"]
        if harm and harm["property"] in properties:
            place.fuzz("replay", f"fuzz-out/findings/{harm['file']}", "--quiet").must(1, harm["property"], harm="lost")
            return said.came(f"{finding['property']} leads to {harm['property']}")
    raise Wrong(f"lost: nothing leads to {' or '.join(properties)}: {said.last}")


@fault("index-then-harm", "an index that names blocks of others: inspection sees that first, every time")
def index_then_harm(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "10s")
    return _leads_to(place, said, "FRESHNESS", "HISTORY")


@fault("published-too-soon", "blocks are published before they are computed: the index is seen to be wrong first")
def too_soon(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-7", *_WALK, "--budget", "10s")
    return _leads_to(place, said, "PUBLISH", "FRESHNESS", "HISTORY")


@fault("goes-on", "a run without a campaign has found something: it goes on for a quarter of its budget")
def goes_on(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "16s").must(1, "hunting goes on for")
    if place.summary()["seconds"] > 15:
        raise Wrong(f"no end: it took {place.summary()['seconds']} of 16 seconds")
    return said.came("said, and done")


@fault("first-ends-it", "--max-findings 1 is given: the first finding ends the run")
def first_ends(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "60s", "--max-findings", 1).must(1)
    if place.summary()["seconds"] > 30:
        raise Wrong("no end: it went on")
    return said.came("it ends")


@fault("two-at-once", "two bugs are planted in one core: a rare one and one that every episode meets")
def two(place: Place) -> Came:
    said = place.fuzz(
        "run", "--target", "fuzz.zoo:NV-1+KC-30", *_WALK, "--budget", "24s", "--max-findings", 0
    ).must(1)  # fmt: skip
    found = {finding["property"] for finding in place.findings()}
    if not {"ALIASING", "OWNERSHIP"} <= found:
        raise Wrong(f"lost: of ALIASING and OWNERSHIP there is {', '.join(sorted(found))}")
    return said.came(", ".join(sorted(found)))


@fault("hypothesis-alone", "Hypothesis alone meets a shallow bug in every run, and a harmful one behind it")
def hypothesis_alone(place: Place) -> Came:
    said = place.fuzz(
        "run", "--target", "fuzz.zoo:NV-3+KC-30", "--engine", "hypothesis", "--seed", "1", "--budget", "24s"
    ).must(1)  # fmt: skip
    found = {finding["property"] for finding in place.findings()}
    if not {"RECOMPUTE", "ALIASING"} <= found:
        raise Wrong(f"lost: of RECOMPUTE and ALIASING there is {', '.join(sorted(found))}")
    return said.came(", ".join(sorted(found)))


@fault("properties-asked-for", "--properties without a campaign: others do not count", quick=True)
def properties(place: Place) -> Came:
    said = place.fuzz(
        "run", "--target", "fuzz.zoo:NV-1", *_WALK, "--budget", "2s", "--properties", "MAPPING"
    ).must(0, "not counted:", "OWNERSHIP")  # fmt: skip
    return said.came("said which were not counted")


@fault("policy-changed", "a finding is replayed on a core whose policy has changed", quick=True)
def policy(place: Place) -> Came:
    place.write(
        "found.json",
        json.dumps(
            {
                "schema": 1,
                "target": "kvcore",
                "property": "OWNERSHIP",
                "policy": {"duplicates": "last"},
                "configuration": {"num_blocks": 8, "block_size": 2},
                "operations": [{"op": "allocate", "request": "a", "tokens": [1, 2, 3]}],
            }
        ),
    )
    said = place.fuzz("replay", "found.json").must(0, "the policy of kvcore has changed", "duplicates last")
    return said.came("said, with both policies")


# ---- one bug is one entry --------------------------------------------------------------------------------------------


@fault("leak-is-isolation", "the salt of a request is left out of the key: the index is seen to be wrong first")
def leak(place: Place) -> Came:
    said = place.fuzz("run", "--target", "fuzz.zoo:VL-29", *_WALK, "--budget", "10s").must(1)
    found = [finding["property"] for finding in place.findings()]
    if found != ["ISOLATION"]:
        raise Wrong(f"wrong blame: a leak across namespaces is called {', '.join(found)}")
    return said.came(", ".join(found))


@fault("leak-in-lookup", "the namespace is part of the key when blocks are published, and lookups leave it out")
def leak_in_lookup(place: Place) -> Came:
    place.write(
        "leaky.py",
        """
        from properties.targets.kvcore import KvcoreTarget

        class Leaky(KvcoreTarget):
            def lookup(self, tokens, namespace):
                return super().lookup(tokens, ())

            def allocate(self, request, tokens, namespace, handle):
                return super().allocate(request, tokens, namespace, None)

        def make(configuration):
            return Leaky(configuration)
        """,
    )
    said = place.fuzz("run", "--target", "leaky:make", *_WALK, "--budget", "12s").must(1)
    told = {
        name
        for finding in place.summary()["findings"]
        for name in (
            finding["property"],
            (finding["leads_to"] or {}).get("property"),
            *(variant["signature"]["property"] for variant in finding["variants"]),
        )
    }
    if "ISOLATION" not in told:
        raise Wrong(f"wrong blame: a leak across namespaces is called {told}")
    return said.came(f"ISOLATION, in {len(place.findings())} findings")


@fault("two-bugs-two-entries", "two bugs of different kinds are planted in one core")
def two_entries(place: Place) -> Came:
    said = place.fuzz(
        "run", "--target", "fuzz.zoo:SG-4+CC-16", *_WALK, "--budget", "24s", "--max-findings", 0
    ).must(1)  # fmt: skip
    found = [finding["property"] for finding in place.findings()]
    if sorted(found) != ["CONSERVATION", "MAPPING"]:
        raise Wrong(f"lost: a CONSERVATION and a MAPPING were planted; there are {', '.join(found)}")
    return said.came("two findings")


@fault("asked-in-vain", "a core has one reuse policy, whatever it is asked for, and fails now and then")
def in_vain(place: Place) -> Came:
    place.write(
        "stubborn.py",
        """
        import random
        from fuzz.zoo import find
        from properties.operations import Configuration
        from properties.targets.kvcore import KvcoreTarget

        def make(configuration):
            core = find("NV-7").factory() if random.random() < 0.3 else KvcoreTarget
            return core(Configuration(configuration.num_blocks, 2))
        """,
    )
    said = place.fuzz("run", "--target", "stubborn:make", *_WALK, "--budget", "4s", "--max-findings", 0).must(1)
    ways = [one["signature"] for finding in place.summary()["findings"] for one in finding["symptoms"]]
    classes = {way["configuration"] for way in ways}
    if classes != {"last_block, caching"}:
        raise Wrong(f"false finding: one configuration is told as {classes}")
    return said.came("one configuration in every heading")
