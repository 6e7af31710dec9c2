"""Mooncake's format: a JSON object a line, with one id for every 512 tokens of the prompt.

The originals are `FAST25-release/traces` in kvcache-ai/Mooncake. Further fields (`timestamp`) are passed over."""

from __future__ import annotations

from ...runs.bounds import TOKENS_OF_ONE, json_of
from ..format import Format
from ..request import ID_RANGE, MAX_HASH_ID, UNIT, BadLine, Request, short

__all__ = ["FORMAT", "Mooncake"]


class Mooncake(Format):
    """`input_length` and `output_length`: tokens. `hash_ids`: ceil(input_length / 512) of them."""

    expected = 'a JSON object with "input_length", "output_length" and "hash_ids" on each line'

    def recognizes(self, line: bytes) -> bool:
        return line.lstrip().startswith(b"{") and b'"hash_ids"' in line

    def request(self, line: bytes) -> Request:
        try:
            data = json_of(line)
        except ValueError as error:
            raise BadLine(f"{short(line)} is not JSON ({error})", self.expected) from None
        if type(data) is not dict:
            raise BadLine(f"{short(line)} is not a JSON object", self.expected)
        for name in ("input_length", "output_length", "hash_ids"):
            if name not in data:
                raise BadLine(f"no field {name!r} in {short(line)}", self.expected)
        for name in ("input_length", "output_length"):
            if type(data[name]) is not int or data[name] < 1:
                raise BadLine(f"{name} is {short(data[name])}", "an integer, at least 1 (tokens)")
        if data["input_length"] > TOKENS_OF_ONE:
            raise BadLine(f"input_length is {short(data['input_length'])}", f"{TOKENS_OF_ONE:,} tokens at most")
        ids = data["hash_ids"]
        if type(ids) is not list:
            raise BadLine(f"hash_ids is {short(ids)}", "a list of integers")
        for value in ids:
            if type(value) is not int:
                raise BadLine(f"hash_ids contains {short(value)}", "integers")
            if not 0 <= value <= MAX_HASH_ID:
                raise BadLine(f"hash_ids contains {value}", ID_RANGE)
        length = data["input_length"]
        if len(ids) != -(-length // UNIT):
            raise BadLine(
                f"{len(ids)} hash_ids for input_length {length}",
                f"{-(-length // UNIT)}: one for each {UNIT} tokens, the last of them for what is left",
            )
        return Request(length, data["output_length"], tuple(ids))


FORMAT = Mooncake
