"""Makes tests/golden/tokenizers: small tokenizers, trained with the packages that define them, and for each
a list of texts with the ids and decoded texts that the package gives.

    python3 tools/oracle/tokenizer_golden.py tests/golden/tokenizers

Needs what tests/parity/requirements.txt names. Training is not reproducible to the last merge between
versions of the packages; the ids belong to the files beside them.
"""

import base64
import json
import pathlib
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[2] / "tests" / "parity"))

import mixed_text  # noqa: E402
import sentencepiece  # noqa: E402
import tiktoken  # noqa: E402
import trained_tokenizers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

TEXTS = [
    b"",
    b" ",
    b"Hello world",
    b" Hello  world \n",
    b"I'm sure they'LL say it's 12345 or 3.14!",
    "Ünïcödé naïve ÅÅ ﬁ Ⅷ ½ ǅ İstanbul".encode(),
    "日本語のテキスト、한국어 텍스트 中文文本。".encode(),
    "שלום עולم مرحبا हिन्दी ไทย".encode(),
    "👩‍👩‍👧‍👦 🏳️‍🌈 ❤️ 👍🏽".encode(),
    b"def f(x):\n\treturn x ** 2  # square\r\n\r\n",
    "a\u3000b\u00a0c\u2028d\x85e\u180ef\u200bg".encode(),
    b"broken \xff\xfe \xe2\x96 \xf0\x9f\x98 \xc0\x80 \xed\xa0\x80 end\xe2",
    b"nul \x00 and \x7f",
    "▁marks▁ Ġ <0x41> <unk> </s> <s>".encode(),
    b"<|endoftext|><|im_start|>user\n<tool_call> <think>x</think>",
    "the end the theend abc abcd abcx ab  Été été là <mask> x <SEP><sep> 本日 本".encode(),
    b"[INST] hi [/INST][UNK] [CLS]\n\n\n<start_of_turn>",
    b"supercalifragilisticexpialidocious " * 3,
    "e\u0301 \uac00\u11a7\u11a8 \u0915\u093c a\u0323\u0307".encode(),
    "\U00031350 \U0001fae8 \u1c89".encode(),
    b"x" * 100,
    b" " * 70 + b"y",
]


def expected(tokenizer, data):
    text = data.decode("utf-8", "replace")
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    case = {"bytes": data.hex(), "ids": ids, "kept": tokenizer.decode(ids, skip_special_tokens=False)}
    skipped = tokenizer.decode(ids, skip_special_tokens=True)
    if skipped != case["kept"]:
        case["skipped"] = skipped
    with_special = tokenizer.encode(text).ids
    if with_special != ids and len(ids) < 20:
        case["ids_with_special_tokens"] = with_special
    return case


def write_cases(folder, cases):
    lines = ",\n".join(json.dumps(case, ensure_ascii=False) for case in cases)
    (folder / "expected.json").write_text(f"[\n{lines}\n]\n", "utf-8")


def sentencepiece_golden(root, texts, name, **options):
    """`expected.json` has no special tokens: sentencepiece's own are never shown."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    # All characters become pieces: let them be few.
    both = [text.decode("utf-8", "replace") for text in [*texts, *mixed_text.documents(60_000, seed=4)]]
    training = [line for text in both for line in "".join(c for c in text if "\0" < c < "\u0180").split("\n") if line]
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(training), model_prefix=str(folder / "tokenizer"), hard_vocab_limit=False, minloglevel=3, **options
    )
    (folder / "tokenizer.vocab").unlink()
    processor = sentencepiece.SentencePieceProcessor(model_file=str(folder / "tokenizer.model"))
    cases = []
    for data in texts:
        ids = processor.encode(data.decode("utf-8", "replace"))
        cases.append({"bytes": data.hex(), "ids": ids, "kept": processor.decode(ids)})
    write_cases(folder, cases)


def tiktoken_golden(root, texts):
    """The ranks of the trained llama3, with a pattern of OpenAI's."""
    folder = root / "tiktoken"
    folder.mkdir(parents=True, exist_ok=True)
    trained = Tokenizer.from_file(str(root / "llama3" / "tokenizer.json"))
    byte_of = {c: b for b, c in trained_tokenizers.byte_characters().items()}
    tokens = [token for token, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1]) if token not in ("</s>", "<|begin|>")]
    ranks = {bytes(byte_of[c] for c in token): i for i, token in enumerate(tokens)}
    (folder / "small.tiktoken").write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for token, i in ranks.items()))
    special = {"<|endoftext|>": len(ranks), "</s>": len(ranks) + 5}
    pattern = trained_tokenizers.CL100K
    scheme = {"pattern": pattern, "special_tokens": special, "end_of_document": "<|endoftext|>"}
    (folder / "small.tiktoken.json").write_text(json.dumps(scheme), "utf-8")
    encoding = tiktoken.Encoding("small", pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
    cases = []
    for data in texts:
        ids = encoding.encode(data.decode("utf-8", "replace"), allowed_special="all")
        plain = [i for i in ids if i not in special.values()]
        cases.append({"bytes": data.hex(), "ids": ids, "kept": encoding.decode(ids), "skipped": encoding.decode(plain)})
    write_cases(folder, cases)


def main():
    root = pathlib.Path(sys.argv[1])
    training = [text.decode("utf-8", "replace") for text in [*TEXTS, *mixed_text.documents(60_000, seed=4)]]
    texts = TEXTS + [text[:300] for text in mixed_text.documents(20_000, seed=5)[9:12]]
    for make in trained_tokenizers.ALL:
        folder = root / make.__name__
        size = 340 if make.__name__ not in ("unigram_with_bytes", "unigram") else 520
        trained_tokenizers.save(make(training, size), make.__name__, folder)
        tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        write_cases(folder, [expected(tokenizer, text) for text in texts])
    sentencepiece_golden(root, texts, "sentencepiece_unigram", model_type="unigram", vocab_size=700)
    plain = {"normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True}
    symbols = ["[INST]", "the", "the end"]
    sentencepiece_golden(root, texts, "sentencepiece_bpe", model_type="bpe", vocab_size=700, byte_fallback=True, user_defined_symbols=symbols, **plain)
    tiktoken_golden(root, texts)


if __name__ == "__main__":
    main()
