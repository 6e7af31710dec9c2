"""The frozen corpus: what was written under any schema version is read for ever, and comes to the same outcomes."""

from __future__ import annotations

import hashlib
import json
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from properties.operations import OPERATIONS, SCHEMA, Configuration, Operation, decode, encode
from properties.session import Session
from properties.targets.kvcore import make

CORPUS = Path(__file__).parent / "corpus"
FILES = sorted(CORPUS.glob("v*/*.json"))

FROZEN = {
    "v1/eviction.json": "c59ae3f0d93bba5acc709e1f360d0b950ab178e06db11d588b306f76e5f7fe81",
    "v1/fork_and_copy.json": "2141456f086c2aafbfcc96a55874495d26a38ebba830fc02ad7a5e450f03875a",
    "v1/long_prompts_without_caching.json": "dc0c54388e6502954962b382fe22cb350372ba5dd7a09eda5a65ed2665e809ba",
    "v1/namespaces.json": "35ab997e4c262cb3cfbb5bcf3076e8bde15d45573b265bd5dbcc29fe06fb8bb9",
    "v1/overlap_and_placeholders.json": "e4cadd0416c7ec4c6f1dcaa1d41e4f80d3e752ece9937123446bde54d87d4970",
    "v1/prefix_hits.json": "ca4c886ccbed3cdbbcc357ed4afcb7ff8cda485b9811a25024aea4f8ab6bb94d",
    "v1/refusals.json": "b83d1c526220d7931680b43c4220fdd453e0cea280d3541ac7c3329932590e84",
    "v1/truncation.json": "503964974103fdbf67fa4653dd3d892c6bf397f57b29d60360291597feed52a7",
}
"""SHA-256 of each file, to say so when one was edited. New files are added here too."""


def name_of(path: Path) -> str:
    return path.relative_to(CORPUS).as_posix()


def read(path: Path) -> tuple[dict[str, Any], Configuration, list[Operation]]:
    data = json.loads(path.read_text(encoding="utf-8"))
    return data, Configuration.from_json(data["configuration"]), [decode(item) for item in data["operations"]]


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_frozen_run_comes_to_the_outcomes_that_it_came_to_then(path: Path) -> None:
    data, configuration, operations = read(path)
    session = Session(make(configuration), walk_every=1)
    assert [list(session.apply(operation)) for operation in operations] == data["outcomes"]
    session.drain()


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_a_frozen_file_has_the_schema_of_its_folder_and_an_outcome_for_each_operation(path: Path) -> None:
    data, _, operations = read(path)
    assert set(data) == {"schema", "configuration", "operations", "outcomes"}
    assert path.parent.name == f"v{data['schema']}"
    assert data["schema"] <= SCHEMA
    assert len(data["outcomes"]) == len(operations)


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_what_was_read_can_be_written_and_read_again(path: Path) -> None:
    _, configuration, operations = read(path)
    assert [decode(json.loads(json.dumps(encode(operation)))) for operation in operations] == operations
    assert Configuration.from_json(json.loads(json.dumps(configuration.to_json()))) == configuration


def test_frozen_files_have_not_been_edited_or_removed() -> None:
    found = {}
    for path in FILES:
        content = json.dumps(json.loads(path.read_text(encoding="utf-8")), sort_keys=True)
        found[name_of(path)] = hashlib.sha256(content.encode()).hexdigest()
    assert found == FROZEN, "the corpus is frozen: add files (here too), edit none"


def test_every_schema_version_has_its_corpus() -> None:
    assert {path.parent.name for path in FILES} == {f"v{version}" for version in range(1, SCHEMA + 1)}


def test_the_corpus_has_every_kind_of_operation() -> None:
    for outcome in ("done", "refused"):
        kinds = set()
        for path in FILES:
            data, _, operations = read(path)
            pairs = zip(operations, data["outcomes"], strict=True)
            kinds |= {operation.op for operation, (status, _) in pairs if status == outcome}
        # Nothing makes a reset invalid.
        assert kinds == set(OPERATIONS) - ({"reset"} if outcome == "refused" else set())


def test_the_corpus_has_every_field_and_every_optional_field_left_out() -> None:
    items = [item for path in FILES for item in read(path)[0]["operations"]]
    for name, kind in OPERATIONS.items():
        own = [item for item in items if item["op"] == name]
        for field in fields(kind):
            assert any(field.name in item for item in own), (name, field.name)
            if field.name in ("namespace", "match"):
                assert any(field.name not in item for item in own), (name, field.name)


def test_the_corpus_has_runs_of_every_form_and_tokens_that_are_none() -> None:
    tokens = [token for path in FILES for item in read(path)[0]["operations"] for token in item.get("tokens", ())]
    forms = set()
    for token in tokens:
        if isinstance(token, list):
            forms.add("consecutive" if len(token) == 2 else (token[2] > 0) - (token[2] < 0))
        else:
            forms.add(type(token))
    assert forms == {"consecutive", -1, 0, 1, int, str, float}
    assert [100, 12000] in tokens
    assert {-1, -5, 2**31} <= {token for token in tokens if type(token) is int}


def test_the_corpus_has_every_choice_of_configuration() -> None:
    seen = [read(path)[1] for path in FILES]
    assert {configuration.reuse for configuration in seen} == {"last_block", "last_token"}
    assert {configuration.caching for configuration in seen} == {True, False}
    assert {0, 128} < {configuration.hash_bits for configuration in seen}
    assert len({configuration.block_size for configuration in seen}) >= 4


def test_the_corpus_has_every_kind_of_outcome() -> None:
    outcomes = {tuple(outcome) for path in FILES for outcome in read(path)[0]["outcomes"]}
    assert {status for status, _ in outcomes} == {"done", "refused", "skipped"}
    refused = {detail for status, detail in outcomes if status == "refused"}
    assert refused == {
        "AlreadyCompleted",
        "DuplicateRequest",
        "EmptyDispatch",
        "InvalidCount",
        "InvalidFill",
        "InvalidLength",
        "InvalidTokens",
        "MatchMismatch",
        "NeverFits",
        "NotComputed",
        "NotNamed",
        "OutOfBlocks",
        "OutOfOrder",
        "RepeatedRequest",
        "UnknownRequest",
    }
