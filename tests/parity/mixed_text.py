"""Documents of mixed text for the parity scripts: scripts of many languages, code, emoji, odd white
space, numbers, and broken UTF-8. The same bytes every time, but for code of Python's own library."""

import pathlib
import random
import unicodedata

# First and last letter of each script.
SCRIPTS = {
    "latin": (0x61, 0x7A),
    "latin with accents": (0xC0, 0x17F),
    "vietnamese": (0x1EA0, 0x1EF9),
    "greek": (0x391, 0x3C9),
    "cyrillic": (0x410, 0x44F),
    "armenian": (0x561, 0x587),
    "hebrew": (0x5D0, 0x5EA),
    "arabic": (0x620, 0x64A),
    "devanagari": (0x905, 0x94D),
    "bengali": (0x985, 0x9CD),
    "tamil": (0xB85, 0xBCD),
    "thai": (0xE01, 0xE4E),
    "tibetan": (0xF40, 0xF84),
    "georgian": (0x10D0, 0x10FA),
    "hangul": (0xAC00, 0xD7A3),
    "jamo": (0x1100, 0x11FF),
    "ethiopic": (0x1200, 0x135A),
    "cherokee": (0x13A0, 0x13FD),
    "khmer": (0x1780, 0x17D2),
    "hiragana": (0x3041, 0x3096),
    "katakana": (0x30A1, 0x30FA),
    "han": (0x4E00, 0x9FFF),
    "han of 2022 and later": (0x31350, 0x323AF),
    "adlam": (0x1E900, 0x1E943),
    "mathematical letters": (0x1D400, 0x1D7FF),
    "full width": (0xFF01, 0xFFDC),
    "ligatures": (0xFB00, 0xFB06),
}
SPACES = [" ", "  ", "   ", "\t", "\n", "\n\n", "\r\n", "\u00a0", "\u3000", "\u2028", "\x0b", "\x85", "\u180e", "\u200b", " \n  \n", " " * 20]
EMOJI = ["😀", "👩‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "❤️", "🫠", "1️⃣", "☃", "\U0001fae8"]
MARKS = ["\u0301", "\u0308", "\u0323", "\u0327", "\u20dd", "\u0345", "\u0334"]
ODDITIES = ["I'm", "we'LL", "they've", "it's", "'S", "ſ", "'ſ", "İ", "ß", "ǅ", "ﬁ", "Å", "Ⅷ", "½", "²", "…", "—", "$5.00", "3.14159", "1234567", "١٢٣", "a_b", "<unk>", "</s>", "▁", "Ġ", "<0x41>", "\u0000", "\ufffd", "\ufeff", "#include <x>", "{{}}", "http://a.b/c?d=e&f", "e\u0301", "가"]


def words(random_source, script, count):
    first, last = SCRIPTS[script]
    letters = [chr(c) for c in range(first, last + 1) if unicodedata.category(chr(c)) != "Cn" or first > 0x30000]
    out = []
    for _ in range(count):
        word = "".join(random_source.choices(letters, k=random_source.randint(1, 9)))
        if random_source.random() < 0.1:
            word = word[:1].upper() + word[1:]
        if random_source.random() < 0.05:
            word += random_source.choice(MARKS)
        out.append(word)
    return out


def prose(random_source, size, extra):
    """Sentences in which everything may stand beside everything."""
    parts = []
    length = 0
    script = "latin"
    while length < size:
        if random_source.random() < 0.2:
            script = random_source.choice(list(SCRIPTS))
        kind = random_source.random()
        if kind < 0.72:
            part = " ".join(words(random_source, script, random_source.randint(1, 8)))
        elif kind < 0.78:
            part = str(random_source.randint(0, 10 ** random_source.randint(1, 12)))
        elif kind < 0.84:
            part = random_source.choice(EMOJI)
        elif kind < 0.92:
            part = random_source.choice(ODDITIES + extra)
        else:
            part = random_source.choice(".,;:!?()[]\"'-/\\@#%&*+=~^`|<>¿。、「」«»")
        parts.append(part)
        parts.append(random_source.choice(SPACES) if random_source.random() < 0.3 else random_source.choice(["", " "]))
        length += len(part) + 1
    return "".join(parts)


def code(random_source, size):
    folder = pathlib.Path(random.__file__).parent
    names = ["ast.py", "bisect.py", "calendar.py", "csv.py", "heapq.py", "random.py", "textwrap.py"]
    text = (folder / random_source.choice(names)).read_text("utf-8")
    start = random_source.randrange(max(1, len(text) - size))
    return text[start : start + size]


def break_bytes(random_source, text):
    """Bytes left out, changed, and put in, so that characters are broken in every way."""
    data = bytearray(text)
    for _ in range(1 + len(data) // 40):
        place = random_source.randrange(len(data))
        kind = random_source.random()
        if kind < 0.4:
            del data[place]
        elif kind < 0.7:
            data[place] = random_source.randrange(256)
        else:
            data[place:place] = random_source.choice([b"\xff", b"\xc0\x80", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xf0\x9f", b"\xe2\x96", b"\x80"])
        if not data:
            data = bytearray(b"\xff")
    return bytes(data)


def every_character():
    """Each assigned character once, in documents of 2,000."""
    characters = [chr(c) for c in range(0x110000) if unicodedata.category(chr(c)) not in ("Cs", "Cn", "Co")]
    for start in range(0, len(characters), 2000):
        yield "".join(characters[start : start + 2000]).encode()


def documents(total_bytes=1_000_000, seed=1, extra=()):
    """Documents of `total_bytes` in all. `extra`: texts that are strewn in, such as added tokens."""
    random_source = random.Random(seed)
    out = [b"", b" ", b"\n", b"a", b" a", b"a ", b"\xff", "▁".encode(), "é".encode()]
    size = 0
    while size < total_bytes:
        length = random_source.choice([20, 200, 2000, 8000])
        if random_source.random() < 0.25:
            text = code(random_source, length).encode()
        else:
            text = prose(random_source, length, list(extra)).encode()
        if random_source.random() < 0.2:
            text = break_bytes(random_source, text)
        out.append(text)
        size += len(text)
    return out
