"""Writes src/data/tokenizers/unicode_tables.cpp: what the tokenizers package knows of characters, where
PCRE2 and utf8proc follow another version of Unicode. Needs the packages tokenizers and unicodedata2,
and Python 3.11 or 3.12, whose own tables are of Unicode 14 and 15 at most:

    python3 tools/oracle/unicode_tables.py > src/data/tokenizers/unicode_tables.cpp
"""

import importlib.metadata
import unicodedata

import unicodedata2
from tokenizers import Regex, normalizers, pre_tokenizers

CODE_POINTS = [c for c in range(0x110000) if not 0xD800 <= c <= 0xDFFF]
CATEGORIES = "Lu Ll Lt Lm Lo Mn Mc Me Nd Nl No Pc Pd Ps Pe Pi Pf Po Sm Sc Sk So Zs Cf".split()
# PCRE2 10.42 has Unicode 14; Python's tables say which characters had been assigned then.
ASSIGNED_IN_14 = {c for c in CODE_POINTS if unicodedata.category(chr(c)) != "Cn"}

# Pairs of characters that are, or would be, another character.
PAIRS = []
COMPOSING = set()
for c in CODE_POINTS:
    parts = unicodedata2.decomposition(chr(c)).split()
    if len(parts) == 2 and not parts[0].startswith("<"):
        PAIRS.append("".join(chr(int(part, 16)) for part in parts))
        COMPOSING |= {c, *map(ord, PAIRS[-1])}


def ranges(code_points):
    out = []
    for c in sorted(code_points):
        if out and out[-1][1] == c - 1:
            out[-1][1] = c
        else:
            out.append([c, c])
    return out


def newer_categories():
    """Characters assigned after Unicode 14, with their category in the package's regular expressions."""
    newer = [c for c in CODE_POINTS if c not in ASSIGNED_IN_14]
    text = "".join(map(chr, newer))
    found = []
    for category in CATEGORIES:
        split = pre_tokenizers.Split(Regex(rf"\p{{{category}}}"), "removed")
        left = {c for piece, _ in split.pre_tokenize_str(text) for c in piece}
        found += [(*r, category) for r in ranges(c for c in newer if chr(c) not in left)]
    return sorted(found)


def removed_by(pre_tokenizer):
    return {c for c in CODE_POINTS if not pre_tokenizer.pre_tokenize_str(chr(c))}


def numbers():
    digits = pre_tokenizers.Digits(individual_digits=True)
    return {c for c in CODE_POINTS if len(digits.pre_tokenize_str("a" + chr(c))) == 2}


def accents():
    strip = normalizers.StripAccents()
    return {c for c in CODE_POINTS if strip.normalize_str(chr(c)) == ""}


def lowercase_exceptions():
    lowercase = normalizers.Lowercase()
    out = []
    for c in CODE_POINTS:
        lower = lowercase.normalize_str(chr(c))
        if lower != chr(c).lower() and len(lower) == 1 and c != 0x3A3:
            out.append((c, ord(lower)))
    return out


def unknown_to_normal_forms():
    """Characters that take part in normalization today, but not in the package's older tables."""
    nfkd, nfd, nfc = normalizers.NFKD(), normalizers.NFD(), normalizers.NFC()
    out = set()
    for c in CODE_POINTS:
        combining = unicodedata2.combining(chr(c))
        changes = unicodedata2.normalize("NFKD", chr(c)) != chr(c)
        if not (combining or changes or c in COMPOSING):
            continue
        if combining > 1:
            known = nfd.normalize_str("a" + chr(c) + "\u0334") != "a" + chr(c) + "\u0334"
        elif combining == 1:
            known = nfd.normalize_str("a\u0301" + chr(c)) != "a\u0301" + chr(c)
        elif changes:
            known = nfkd.normalize_str(chr(c)) != chr(c)
        else:
            # It only composes: known if a pair with it becomes one character, or never may.
            pairs = [pair for pair in PAIRS if chr(c) in pair]
            known = any(
                len(nfc.normalize_str(pair)) == 1 or unicodedata2.normalize("NFC", pair) == pair
                for pair in pairs
            )
        if not known:
            out.add(c)
    return out


def write_rows(rows):
    line = "   "
    for row in rows:
        if len(line) + len(row) + 2 > 100:
            print(line)
            line = "   "
        line += f" {row},"
    print(line)


def write_ranges(name, comment, code_points):
    print(f"// {comment}\nconstexpr CodePointRange {name}[] = {{")
    write_rows(f"{{0x{a:x}, 0x{b:x}}}" for a, b in ranges(code_points))
    print("};\n")


def main():
    version = importlib.metadata.version("tokenizers")
    print("// Made by tools/oracle/unicode_tables.py; do not edit.")
    print('#include "data/tokenizers/unicode_tables.h"\n\nnamespace switchyard {\nnamespace {\n')
    print("// clang-format off\n")
    print(f"// Assigned after Unicode 14, as in the regular expressions of tokenizers {version}.")
    print("constexpr CategoryRange kNewer[] = {")
    write_rows(f'{{0x{a:x}, 0x{b:x}, "{category}"}}' for a, b, category in newer_categories())
    print("};\n")
    write_ranges("kNumbers", "The package's pre-tokenizer Digits.", numbers())
    write_ranges("kPunctuation", "Its pre-tokenizer Punctuation.", removed_by(pre_tokenizers.Punctuation("removed")))
    write_ranges("kAccents", "Its normalizer StripAccents.", accents())
    write_ranges("kUnknownToNormalForms", "Later than the tables of its normalizers NFC, NFD, NFKC and NFKD.", unknown_to_normal_forms())
    print("// Its normalizer Lowercase, where Unicode 14 has no lower case.\nconstexpr CodePointPair kLowercase[] = {")
    write_rows(f"{{0x{a:x}, 0x{b:x}}}" for a, b in lowercase_exceptions())
    print("};\n\n// clang-format on\n\n}  // namespace\n")
    print("std::span<const CategoryRange> newer_characters() { return kNewer; }")
    print("std::span<const CodePointRange> number_ranges() { return kNumbers; }")
    print("std::span<const CodePointRange> punctuation_ranges() { return kPunctuation; }")
    print("std::span<const CodePointRange> accent_ranges() { return kAccents; }")
    print("std::span<const CodePointRange> ranges_unknown_to_normal_forms() { return kUnknownToNormalForms; }")
    print("std::span<const CodePointPair> newer_lowercase() { return kLowercase; }")
    print("\n}  // namespace switchyard")


if __name__ == "__main__":
    main()
