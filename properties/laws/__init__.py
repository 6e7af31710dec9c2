"""Laws: observers of the Session that compare a core's own bookkeeping with what the judge derived.

The judge (in `reference`) needs nothing but a core's choices. A law needs to see inside, so each says which
capabilities it needs and is left out, visibly, where they are lacking. A law is asked after every operation, with the
cost of what the operation touched, and at intervals (`walk`) for the whole state. The kernels will enter here too: as a
law that executes each step's batch.

Imports: properties, reference.
"""

from .bookkeeping import Bookkeeping
from .internals import Internals
from .law import Law, Seen

__all__ = ["Bookkeeping", "Internals", "Law", "Seen"]
