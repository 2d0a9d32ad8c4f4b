"""Cuts a stream into tokens, the same ones wherever its deltas were cut, and writes each as one code point.

A token is a word, a newline, or one other visible character; spaces are not counted. Beyond that, so that
every loop makes tokens: scripts written without spaces count by the character; while 32 or more word
characters lie ahead, the next two are a token, and while 16 or more spaces do, the next four (about what
byte-pair encoders make of hashes and of indentation). Halves of a surrogate pair are joined.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final
from zlib import crc32

LONG_WORD_CHARS: Final = 32
LONG_SPACE_CHARS: Final = 16
WORD_PIECE_CHARS: Final = 2
SPACE_PIECE_CHARS: Final = 4

_SEPARATOR_CODES: Final = range(0x10000, 0x20000)
NUMBER_CODES: Final = range(0x20000, 0x60000)
"""Words with digits: one of 64 names, times 4,096, and the last number in it, modulo 4,096."""
NUMBER_VALUES: Final = 4_096
_WORD_CODES: Final = range(0x60000, 0x110000)
_CACHED_CODES: Final = 8_192

_WITHOUT_SPACES: Final = (
    "\u0e00-\u0fff"  # Thai, Lao, Tibetan
    "\u1000-\u109f\u1780-\u17ff"  # Myanmar, Khmer
    "\u3040-\u30ff\u31f0-\u31ff\uff66-\uff9d"  # kana
    "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"  # Han
)
_SPACES: Final = (
    "\t\x0b\x0c\r\x1c\x1d\x1e\x1f \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007\u2008\u2009"
    "\u200a\u2028\u2029\u202f\u205f\u3000"
)
"""All white space except the newline."""


def _pattern(word: str, space: str) -> re.Pattern[str]:
    more_space = LONG_SPACE_CHARS - SPACE_PIECE_CHARS
    return re.compile(
        rf"{word}{{1,{LONG_WORD_CHARS - 1}}}+(?!{word})|{word}{{{WORD_PIECE_CHARS}}}"
        rf"|\n|{space}{{{SPACE_PIECE_CHARS}}}(?={space}{{{more_space}}})|\S"
    )


_ASCII: Final = _pattern(word="[0-9A-Z_a-z]", space=r"[\t\x0b-\r\x1c-\x20]")
"""Does on ASCII what _UNICODE does, in two thirds of the time."""
_UNICODE: Final = _pattern(word=rf"[^\W{_WITHOUT_SPACES}]", space=r"[^\S\n]")
_LAST_NUMBER: Final = re.compile("([0-9]+)[^0-9]*$")
_SURROGATE: Final = re.compile("[\ud800-\udfff]")


def tokenize(text: str, *, ended: bool = False) -> tuple[list[str], str]:
    """Cut what no later text can change.

    Returns:
        The tokens, and the rest of the text (at most 32 characters), whose cut depends on what comes next:
        it belongs before the next delta. When the stream has ended there is no rest.
    """
    half = ""
    if text.isascii():
        tokens = _ASCII.findall(text)
    else:
        text, half = _join_surrogates(text)
        if ended:
            text, half = text + half, ""
        tokens = _UNICODE.findall(text)
    if ended or not text:
        return tokens, half
    last = text[-1]
    if last.isalnum() or last == "_":
        return tokens, tokens.pop() + half
    return tokens, _open_spaces(text) + half


def _join_surrogates(text: str) -> tuple[str, str]:
    """Pairs as one character each; and the first half of a pair at the very end, apart."""
    if not _SURROGATE.search(text):
        return text, ""
    text = text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return (text[:-1], text[-1]) if "\ud800" <= text[-1] <= "\udbff" else (text, "")


def _open_spaces(text: str) -> str:
    """The run of spaces at the end, as far as it has not been cut into pieces."""
    run = len(text) - len(text.rstrip(_SPACES))
    if run >= LONG_SPACE_CHARS:
        run = LONG_SPACE_CHARS - SPACE_PIECE_CHARS + run % SPACE_PIECE_CHARS
    return text[len(text) - run :]


@lru_cache(maxsize=_CACHED_CODES)
def code(token: str) -> str:
    """The token's fingerprint as one code point, so that sequences of tokens are strings.

    Some twenty bits of its CRC32 (Z14); ten in a row do not collide by chance. Separators, words with digits
    and other words have ranges of their own.
    """
    if number := _LAST_NUMBER.search(token):
        name = token[: number.start(1)] + token[number.end(1) :]
        names = len(NUMBER_CODES) // NUMBER_VALUES
        return chr(NUMBER_CODES[_fingerprint(name) % names * NUMBER_VALUES + int(number[1]) % NUMBER_VALUES])
    space = _WORD_CODES if token[0].isalnum() or token[0] == "_" else _SEPARATOR_CODES
    return chr(space[_fingerprint(token) % len(space)])


def _fingerprint(text: str) -> int:
    return crc32(text.encode("utf-8", "surrogatepass"))


def codes(tokens: list[str]) -> str:
    """One code point per token."""
    return "".join(map(code, tokens))


def all_separators(sequence: str) -> bool:
    """Whether no word is among the tokens of a sequence of codes."""
    return ord(max(sequence)) < NUMBER_CODES.start
