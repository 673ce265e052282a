"""Which characters the glyph data set is made of, and the named groups they fall into."""

from __future__ import annotations

import bisect
import unicodedata

# First code point of each stretch and the group its characters belong to. A stretch ends where the
# next begins; the stretches between those that the fonts cover are empty and need no name.
_STRETCHES: tuple[tuple[int, str], ...] = (
    (0x0000, "Punctuation"),
    (0x0030, "Digits"),
    (0x003A, "Punctuation"),
    (0x0041, "Latin"),
    (0x005B, "Punctuation"),
    (0x0061, "Latin"),
    (0x007B, "Punctuation"),
    (0x00C0, "Latin extended"),
    (0x0250, "Phonetic"),
    (0x02B0, "Modifier letters"),
    (0x0370, "Greek"),
    (0x03E2, "Coptic"),
    (0x03F0, "Greek"),
    (0x0400, "Cyrillic"),
    (0x0460, "Cyrillic extended"),
    (0x0530, "Armenian"),
    (0x0590, "Hebrew"),
    (0x0600, "Arabic"),
    (0x0E80, "Lao"),
    (0x10A0, "Old Georgian"),
    (0x10D0, "Georgian"),
    (0x1400, "Canadian syllabics"),
    (0x1D00, "Phonetic"),
    (0x1E00, "Latin extended"),
    (0x1F00, "Greek"),
    (0x2000, "Punctuation"),
    (0x2070, "Digits"),
    (0x20A0, "Currency"),
    (0x2100, "Letterlike symbols"),
    (0x2150, "Number forms"),
    (0x2190, "Arrows"),
    (0x2200, "Mathematical operators"),
    (0x2300, "Technical symbols"),
    (0x2336, "APL"),
    (0x237B, "Technical symbols"),
    (0x2395, "APL"),
    (0x2396, "Technical symbols"),
    (0x2460, "Enclosed characters"),
    (0x2500, "Box drawing"),
    (0x2580, "Block elements"),
    (0x25A0, "Geometric shapes"),
    (0x2600, "Miscellaneous symbols"),
    (0x2700, "Dingbats"),
    (0x27C0, "Supplemental mathematics"),
    (0x27F0, "Arrows"),
    (0x2800, "Braille"),
    (0x2900, "Supplemental arrows"),
    (0x2980, "Supplemental mathematics"),
    (0x2B00, "Supplemental arrows"),
    (0x2B12, "Geometric shapes"),
    (0x2C60, "Latin extended"),
    (0x2D00, "Old Georgian"),
    (0x2E00, "Punctuation"),
    (0x4DC0, "Hexagrams"),
    (0xA4D0, "Lisu"),
    (0xA640, "Cyrillic extended"),
    (0xA700, "Modifier letters"),
    (0xA720, "Latin extended"),
    (0xFB13, "Armenian"),
    (0xFB1D, "Pointed Hebrew"),
    (0xFB50, "Arabic forms"),
    (0xFF00, "Miscellaneous symbols"),
    (0x10300, "Old Italic"),
    (0x1D300, "Tai Xuan Jing"),
    (0x1D400, "Mathematical letters"),
    (0x1F030, "Dominoes and cards"),
    (0x1F400, "Emoticons"),
)
_STARTS = [start for start, _ in _STRETCHES]

# Scripts, whole and with all their extensions, that the transfer domain keeps for the novel task.
TRANSFER_GROUPS = frozenset(
    {
        "Cyrillic",
        "Cyrillic extended",
        "Armenian",
        "Georgian",
        "Old Georgian",
        "Hebrew",
        "Pointed Hebrew",
    }
)
FINE_GROUP = "Accented Latin"


def is_shape(code: int) -> bool:
    """Whether a character stands alone and has a shape of its own.

    Control characters, spaces and combining marks are out. So are the mathematical italic, bold,
    sans-serif and monospace letters: they are what the other faces already make of plain letters.

    Example:
        >>> is_shape(ord("Ж")), is_shape(ord(" ")), is_shape(0x1D434)  # mathematical italic A
        (True, False, False)
    """
    if unicodedata.category(chr(code))[0] in "CZM":
        return False
    words = unicodedata.name(chr(code), "").split()
    own_shape = {"DOUBLE-STRUCK", "SCRIPT", "FRAKTUR"}
    return not (words[:1] == ["MATHEMATICAL"] and code >= 0x1D400 and own_shape.isdisjoint(words))


def group_of(code: int) -> str:
    """The named group of a character.

    Example:
        >>> [group_of(ord(c)) for c in "Aé∑Ж+€²"]  # doctest: +NORMALIZE_WHITESPACE
        ['Latin', 'Accented Latin', 'Mathematical operators', 'Cyrillic',
         'Mathematical operators', 'Currency', 'Digits']
    """
    category = unicodedata.category(chr(code))
    if category == "Sc":
        return "Currency"
    if code < 0x0250 and category != "Lo":
        if category == "Sm":
            return "Mathematical operators"
        if category == "So":
            return "Miscellaneous symbols"
        if category == "No":
            return "Number forms" if chr(code) in "¼½¾" else "Digits"
    group = _STRETCHES[bisect.bisect_right(_STARTS, code) - 1][1]
    decomposition = unicodedata.decomposition(chr(code))
    if decomposition and not decomposition.startswith("<"):  # a letter with its marks
        return {"Latin extended": FINE_GROUP, "Greek": "Accented Greek"}.get(group, group)
    return group


def class_name(code: int) -> str:
    """A readable name that no other class has: group, the character itself, its Unicode name."""
    name = unicodedata.name(chr(code), f"U+{code:04X}")
    return f"{group_of(code)}: {chr(code)} {name}"
