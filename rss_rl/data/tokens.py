"""From text to words, and from words to the keys that the vocabulary counts.

Words follow the Penn Treebank: `do n't`, `Kim 's`, `` no '' for quotes, `--`, `...`. One expression
finds them from left to right, in time linear in the text: repetitions are possessive, but for an
address's, which gives back its last signs.
"""

from __future__ import annotations

import re
import unicodedata
from typing import NamedTuple

from rss_rl.data.sources import Text, Words

TOKENIZER_NAME = "penn"

# What follows stands inside of character classes.
_BLANK = r"\s\u200b\ufeff"
_OPENING, _CLOSING = r"(\[{<«“„‘", r"\"')\]}>»”’"
_SEPARATE = (
    rf"`{_OPENING})\]}}>»”’;@#$%&?!*\u2012-\u2015…¿¡،؛؟۔।॥"
    r"\u3001-\u3004\u3008-\u3020\u3030\u303d\u30fb\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65"
)
_MARK = r"\u0300-\u036f\u1ab0-\u1aff\u1dc0-\u1dff\u20d0-\u20ff\ufe00-\ufe0f\ufe20-\ufe2f"
_MARK += r"\u3099\u309a\uff9e\uff9f\U000e0100-\U000e01ef"
_IDEOGRAPH = r"\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3038-\u303b\u3400-\u4dbf\u4e00-\u9fff"
_IDEOGRAPH += r"\uf900-\ufaff\U00020000-\U000323af"
_HIRAGANA, _KATAKANA = r"\u3041-\u3096\u309b-\u309f", r"\u30a1-\u30fa\u30fc-\u30ff\u31f0-\u31ff"
_KATAKANA += r"\uff66-\uff9d"
_PICTURE = r"\u2300-\u23ff\u2600-\u27bf\u2b00-\u2bff\U0001f000-\U0001f1e5\U0001f200-\U0001faff"
_FLAG = r"\U0001f1e6-\U0001f1ff"
# Thai and Lao, Myanmar, Khmer, without their digits
_UNSPACED = r"\u0e00-\u0e4f\u0e5a-\u0ecf\u0eda-\u0eff\u1000-\u103f\u104a-\u108f\u109a-\u109f"
_UNSPACED += r"\u1780-\u17df\u17ea-\u17ff"
_BEFORE, _STACKED = r"\u0e40-\u0e44\u0ec0-\u0ec4", r"\u1039\u17d2"
_AFTER = r"\u0e30\u0e32\u0e33\u0eb0\u0eb2\u0eb3" + "".join(
    sign
    for sign in map(chr, [*range(0xE00, 0xF00), *range(0x1000, 0x10A0), *range(0x1780, 0x1800)])
    if unicodedata.category(sign).startswith("M") and sign not in "\u1039\u17d2"
)
_UNITS = _IDEOGRAPH + _HIRAGANA + _KATAKANA + _PICTURE + _FLAG + _UNSPACED

_CLITIC = r"'(?i:[smd]|ll|re|ve)(?![\w-])"
_NOT_FINAL = rf"""(?:
    (?! [{_CLOSING}]*+ (?: [{_BLANK}] | \Z ) )
  | (?<= \b[^\W\d_]\.[^\W\d_]\. )                                       # U.S., e.g.
  | (?<= (?<![^\s("'])[^\W\d_a-zI]\. ) (?! \s*\Z )                       # J. Smith
  | (?: (?<= (?i:\b(?:mr|ms|dr|st|jr|sr|vs|co)\.) ) | (?<= (?i:\b(?:mrs|etc|gen|inc)\.) )
      | (?<= (?i:\bprof\.) ) | (?<= (?i:\bno\.) ) (?= \s+\d ) ) (?! \s*\Z )
)"""
_TOKEN = re.compile(
    rf"""(
    (?: [hH][tT][tT][pP][sS]?:// | [wW]{{3}}\. ) [\w!#-;=?-~]* [\w#$%&+/=@~-]
  | [cC](?i:an)(?=(?i:not)\b) | [gG](?: (?i:on)(?=(?i:na)\b) | (?i:ot)(?=(?i:ta)\b)
  | (?i:im)(?=(?i:me)\b) ) | [lL](?i:em)(?=(?i:me)\b) | [wW](?i:an)(?=(?i:na)\b)
  | [nN]'[tT](?![\w-])
  | (?: [^nN.,:'\-{_BLANK}{_SEPARATE}{_UNITS}]++
      | [nN] (?!'[tT](?![\w-]))
      | [.] (?!\.) {_NOT_FINAL}
      | [,:] (?=\d)
      | - (?!-)
      | (?<=\w) [¿¡]                                                       # in mojibake
      | (?<=\w) (?!{_CLITIC}) ' (?=-?\w)
    )++
  | {_CLITIC} | '[tTnN](?!\w) | '' | \.++ | -- | ``
  | [{_KATAKANA}][{_KATAKANA}{_MARK}]*+
  | [{_FLAG}]{{2}}
  | [{_PICTURE}] (?: \u200d[^{_BLANK}] | [{_MARK}\U0001f3fb-\U0001f3ff\U000e0020-\U000e007f] )*+
  | [{_BEFORE}]? [{_UNSPACED}] (?: [{_STACKED}][{_UNSPACED}] | [{_AFTER}{_STACKED}] )*+
  | [^{_BLANK}] [{_MARK}]*+
    )\ *+""",
    re.VERBOSE,
)
_LINE_BREAK = re.compile(r"<br\s*+/?>", re.IGNORECASE)
_APOSTROPHE = re.compile(r"(?<=[^\W\d_])[`´’](?=[^\W\d_])")
_OPENING_QUOTE = re.compile(rf"(?<![^{_BLANK}{_OPENING}])(?:\"|''(?=\w))")


class Tokens(NamedTuple):
    """Words of one text: `words` as written, `keys` as the vocabulary knows them."""

    words: tuple[str, ...]
    keys: tuple[str, ...]


class Tokenizer:
    """Splits texts into words; given tokens are kept as they are.

    Args:
        lower: lower-case the keys, except those of given tokens that are not `Words`.
    """

    def __init__(self, lower: bool = True) -> None:
        self.lower = lower

    def __call__(self, text: Text) -> Tokens:
        """The tokens of `text`; none for a text of white space."""
        if isinstance(text, tuple) and not isinstance(text, Words):
            return Tokens(text, text)
        words = text if isinstance(text, tuple) else _split(text)
        return Tokens(words, tuple(map(str.lower, words)) if self.lower else words)


def _split(text: str) -> tuple[str, ...]:
    if "<" in text:
        text = _LINE_BREAK.sub("\n", text)
    if "`" in text or not text.isascii():
        text = _APOSTROPHE.sub("'", text)
    if '"' in text or "''" in text:
        text = _OPENING_QUOTE.sub(" `` ", text).replace('"', " '' ")
    return tuple(_TOKEN.findall(text))
