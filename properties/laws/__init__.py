"""Laws: observers of the Session that compare a core's own bookkeeping with what the judge derived.

The judge (in `reference`) needs only a core's choices. A law needs to see inside. So each law says which capabilities
it needs; where they are missing it is left out, and the summary says so. A law is asked after every operation, at the
cost of what the operation touched, and at intervals (`walk`) for the whole state. Kernels are checked by a law too,
which runs each step's batch: `properties/attention/law.py`.

Imports: properties, reference.
"""

from .bookkeeping import Bookkeeping
from .counting import Counting
from .growth import Growing
from .internals import Internals
from .law import AtSteps, AtWalks, Law, Seen
from .padding import Padding
from .sizes import Sizes

__all__ = ["AtSteps", "AtWalks", "Bookkeeping", "Counting", "Growing", "Internals", "Law", "Padding", "Seen", "Sizes"]
