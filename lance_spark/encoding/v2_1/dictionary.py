"""Dictionary as a compressive encoding: indices and items inside one buffer.

No release of Lance writes it into pages of versions 2.1 and 2.2: there a page's dictionary is a buffer of its own, told
in `MiniBlockLayout.dictionary`. A page that names it is refused with the encoding's name.
"""

from __future__ import annotations

from lance_spark.encoding.v2_1.codec import Codec


class DictionaryCodec(Codec):
    """Refuses `Dictionary` in each of its uses."""

    name = "dictionary"
