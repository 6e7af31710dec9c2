"""Histories as numbers: equal exactly if namespace and all tokens are equal."""

from __future__ import annotations

from array import array
from itertools import product

from reference import Histories


def block(*values: int) -> bytes:
    return array("i", values).tobytes()


def test_equal_histories_have_one_number():
    histories = Histories()
    first = histories.extend(histories.root(()), block(1, 2))
    second = histories.extend(histories.root(()), block(1, 2))
    assert first == second


def test_different_histories_have_different_numbers():
    histories = Histories()
    numbers = set()
    for namespace in ((), (("salt", "s"),)):
        for length in range(4):
            for choice in product([block(0), block(1)], repeat=length):
                history = histories.root(namespace)
                for piece in choice:
                    history = histories.extend(history, piece)
                numbers.add(history)
    assert len(numbers) == 2 * (1 + 2 + 4 + 8)


def test_where_a_block_ends_is_part_of_a_history():
    histories = Histories()
    root = histories.root(())
    whole = histories.extend(root, block(1, 2))
    halves = histories.extend(histories.extend(root, block(1)), block(2))
    assert whole != halves


def test_a_namespace_is_not_a_block_of_tokens():
    histories = Histories()
    root = histories.root(())
    assert histories.root(block(1)) != histories.extend(root, block(1))


def test_a_history_knows_its_parent_and_describes_itself():
    histories = Histories()
    root = histories.root((("salt", "s"),))
    first = histories.extend(root, block(1, 2))
    second = histories.extend(first, block(3, 4))
    assert histories.parent(second) == first and histories.parent(first) == root
    assert histories.describe(second) == ((("salt", "s"),), (1, 2, 3, 4))
    assert histories.describe(root) == ((("salt", "s"),), ())


def test_a_placeholder_is_shown_as_it_is():
    histories = Histories()
    assert histories.describe(histories.extend(histories.root(()), block(1, -1))) == ((), (1, -1))
