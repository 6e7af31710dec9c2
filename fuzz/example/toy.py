"""A toy allocator with a bug, and its adapter: see docs/your-core.md. From its folder:

python -m fuzz run --target toy:make
pytest --pyargs properties.suite --target toy:make
"""

from properties.target import Adapter, Refused, StepView
from reference import Policy


class Toy:
    """Blocks with reference counts, a list of free ones, and an index from a prefix to the block that ends it."""

    def __init__(self, num_blocks, block_size):
        self.size = block_size
        self.references = [0] * num_blocks
        self.free = list(range(num_blocks))
        self.index = {}

    def take(self):
        block = self.free.pop(0)  # BUG: whatever the index says of this block stays there
        self.references[block] = 1
        return block

    def hits(self, tokens):
        blocks = []
        for end in range(self.size, len(tokens), self.size):
            if tuple(tokens[:end]) not in self.index:
                break
            blocks.append(self.index[tuple(tokens[:end])])
        return blocks

    def admit(self, tokens):
        hits = self.hits(tokens)
        new = -(-len(tokens) // self.size) - len(hits)
        if new > len(self.free) - sum(self.references[block] == 0 for block in hits):
            return None
        for block in hits:
            if self.references[block] == 0:
                self.free.remove(block)
            self.references[block] += 1
        return hits, hits + [self.take() for _ in range(new)]

    def release(self, table):
        for block in reversed(table):
            self.references[block] -= 1
            if self.references[block] == 0:
                self.free.append(block)


class ToyTarget(Adapter):
    """What the harness needs to know: when it is refused, and which blocks a request has."""

    def __init__(self, configuration):
        self.policy = Policy(configuration.num_blocks, configuration.block_size, order="released", duplicates="last")
        self.core = Toy(configuration.num_blocks, configuration.block_size)
        self.tokens, self.tables, self.computed = {}, {}, {}

    def allocate(self, request, tokens, namespace, handle):
        admitted = self.core.admit(tokens)
        if admitted is None:
            raise Refused("OutOfBlocks")
        hits, self.tables[request] = admitted
        self.tokens[request] = list(tokens)
        self.computed[request] = len(hits) * self.core.size
        return self.computed[request]

    def append(self, request, tokens):
        length, table = len(self.tokens[request]) + len(tokens), self.tables[request]
        new = -(-length // self.core.size) - len(table)
        if new > len(self.core.free):
            raise Refused("OutOfBlocks")
        table += [self.core.take() for _ in range(new)]
        self.tokens[request] += tokens

    def dispatch(self, work):
        return StepView(work)

    def complete(self, handle):
        size, index = self.core.size, self.core.index
        for request, count in handle:
            before = self.computed[request]
            self.computed[request] += count
            for end in range(before - before % size + size, before + count + 1, size):
                index[tuple(self.tokens[request][:end])] = self.tables[request][end // size - 1]

    def free(self, request):
        self.core.release(self.tables.pop(request))

    def table(self, request):
        return list(self.tables[request])


make = ToyTarget
