"""Small tokenizers trained with the tokenizers package, one for each way that its parts are put together
in models, and some with odd parts."""

import json

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors, trainers

LLAMA3 = r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
QWEN2 = LLAMA3.replace("{1,3}", "")
O200K = "|".join(
    [
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?",
        r"\p{N}{1,3}",
        r" ?[^\s\p{L}\p{N}]+[\r\n/]*",
        r"\s*[\r\n]+",
        r"\s+(?!\S)",
        r"\s+",
    ]
)
DEEPSEEK = [
    r"\p{N}{1,3}",
    "[一-龥぀-ゟ゠-ヿ]+",
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
]
CL100K = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?+\p{L}++|\p{N}{1,3}+| ?[^\s\p{L}\p{N}]++[\r\n]*+|\s++$|\s*[\r\n]|\s+(?!\S)|\s"
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]


def byte_characters():
    """The character of each byte in the alphabet of byte-level tokenizers."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {byte: chr(byte) for byte in printable} | {byte: chr(256 + i) for i, byte in enumerate(others)}


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Split(Regex(pattern), behavior, invert)


def byte_level(use_regex=True, add_prefix_space=False):
    return pre_tokenizers.ByteLevel(add_prefix_space=add_prefix_space, use_regex=use_regex)


def train_bpe(texts, size, pre_tokenizer=None, normalizer=None, bytes_alphabet=False, specials=("</s>",), **model):
    tokenizer = Tokenizer(models.BPE(**model))
    if pre_tokenizer is not None:
        tokenizer.pre_tokenizer = pre_tokenizer
    if normalizer is not None:
        tokenizer.normalizer = normalizer
    alphabet = pre_tokenizers.ByteLevel.alphabet() if bytes_alphabet else []
    trainer = trainers.BpeTrainer(vocab_size=size, special_tokens=list(specials), initial_alphabet=alphabet, limit_alphabet=1000 if bytes_alphabet else max(100, size // 3), show_progress=False)
    tokenizer.train_from_iterator(texts, trainer)
    return tokenizer


def with_byte_tokens(tokenizer, ignore_merges=False):
    """The same BPE with <unk>, <s>, </s> and the byte tokens in front, as converters of Llama do."""
    data = json.loads(tokenizer.to_str())
    old = [token for token, _ in sorted(data["model"]["vocab"].items(), key=lambda item: item[1])]
    names = ["<unk>", "<s>", "</s>", *BYTES]
    names += [token for token in old if token not in names]
    data["model"] |= {"vocab": {token: i for i, token in enumerate(names)}, "byte_fallback": True, "fuse_unk": True, "unk_token": "<unk>", "ignore_merges": ignore_merges}
    data["added_tokens"] = [
        {"id": i, "content": names[i], "single_word": False, "lstrip": False, "rstrip": False, "normalized": False, "special": True}
        for i in range(3)
    ]
    return Tokenizer.from_str(json.dumps(data))


def bos(tokenizer, token="<s>"):
    tokenizer.post_processor = processors.TemplateProcessing(single=f"{token} $A", pair=f"{token} $A {token} $B", special_tokens=[(token, tokenizer.token_to_id(token))])


def gpt2(texts, size):
    tokenizer = train_bpe(texts, size, byte_level(add_prefix_space=True), bytes_alphabet=True, specials=["<|endoftext|>"])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.ByteLevel(trim_offsets=False)
    return tokenizer


def llama3(texts, size):
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence([split(LLAMA3), byte_level(False)]), bytes_alphabet=True, specials=["</s>", "<|begin|>"], ignore_merges=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.post_processor = processors.Sequence([processors.ByteLevel(trim_offsets=False), processors.TemplateProcessing(single="<|begin|> $A", special_tokens=[("<|begin|>", 1)])])
    return tokenizer


def qwen2(texts, size):
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence([split(QWEN2), byte_level(False)]), normalizers.NFC(), bytes_alphabet=True, specials=[])
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(["<|endoftext|>", "<|im_start|>", "<|im_end|>", "</s>"])
    tokenizer.add_tokens([AddedToken("<tool_call>", normalized=False), AddedToken("<think>", normalized=True)])
    return tokenizer


def o200k(texts, size):
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence([split(O200K), byte_level(False)]), bytes_alphabet=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def deepseek(texts, size):
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence([*map(split, DEEPSEEK), byte_level(False)]), normalizers.Sequence([]), bytes_alphabet=True)
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def byte_level_normalizer(texts, size):
    tokenizer = train_bpe(texts, size, split(r"Ġ?\p{L}+|Ġ?[^\p{L}]"), normalizers.Sequence([normalizers.NFC(), normalizers.ByteLevel()]), bytes_alphabet=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens([AddedToken("été", normalized=True), AddedToken("été là", normalized=False)])
    return tokenizer


def llama2(texts, size, ignore_merges=False):
    tokenizer = with_byte_tokens(train_bpe(texts, size, pre_tokenizers.Metaspace(), specials=[]), ignore_merges)
    tokenizer.pre_tokenizer = None
    tokenizer.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    bos(tokenizer)
    return tokenizer


def llama2_whole_pieces(texts, size):
    return llama2(texts, size, ignore_merges=True)


def mistral(texts, size):
    tokenizer = with_byte_tokens(train_bpe(texts, size, pre_tokenizers.Metaspace(), specials=[]))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)])
    tokenizer.add_special_tokens(["[INST]", "[/INST]"])
    return tokenizer


def gemma(texts, size):
    """Merges reach over spaces here, as the text is not cut for training."""
    lines = [line for text in texts for line in text.split("\n")]
    tokenizer = with_byte_tokens(train_bpe(lines, size, split(r"▁[^▁]+▁[^▁]+"), normalizers.Replace(" ", "▁"), specials=[]))
    tokenizer.normalizer = normalizers.Replace(" ", "▁")
    tokenizer.pre_tokenizer = pre_tokenizers.Split(" ", "merged_with_previous")
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    tokenizer.add_tokens([AddedToken("\n\n", normalized=False), AddedToken("▁▁▁", normalized=False), AddedToken("<start_of_turn>", special=True, normalized=False)])
    return tokenizer


def unknown_characters(texts, size):
    """No bytes to fall back on: characters that are no token are unknown, one by one."""
    steps = [pre_tokenizers.Whitespace(), pre_tokenizers.Punctuation(), pre_tokenizers.Digits(individual_digits=True)]
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence(steps), normalizers.NFKC(), specials=["[UNK]", "</s>", "[CLS]", "[SEP]"], unk_token="[UNK]")
    tokenizer.post_processor = processors.BertProcessing(("[SEP]", 3), ("[CLS]", 2))
    return tokenizer


def fused_unknown(texts, size):
    steps = [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.Metaspace(prepend_scheme="first")]
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence(steps), normalizers.NFKD(), specials=["[UNK]", "</s>"], unk_token="[UNK]", fuse_unk=True)
    tokenizer.decoder = decoders.Metaspace()
    tokenizer.post_processor = processors.RobertaProcessing(("</s>", 1), ("[UNK]", 0))
    return tokenizer


def dropped_characters(texts, size):
    """Characters that are no token vanish."""
    return train_bpe(texts, size, pre_tokenizers.Punctuation("contiguous"), normalizers.Sequence([normalizers.NFD(), normalizers.StripAccents(), normalizers.Lowercase()]))


def odd_added_tokens(texts, size):
    steps = [normalizers.Lowercase(), normalizers.NFKD(), normalizers.StripAccents()]
    tokenizer = train_bpe(texts, size, byte_level(), normalizers.Sequence(steps), bytes_alphabet=True)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_tokens(
        [
            AddedToken("the", single_word=True),
            AddedToken("the end", lstrip=True),
            AddedToken("Été", rstrip=True, normalized=True),
            AddedToken("ab", normalized=False),
            AddedToken("abc", normalized=False, rstrip=True),
            AddedToken("abcd", normalized=False, single_word=True),
            AddedToken("  ", normalized=False),
            AddedToken("İ", normalized=True),
            AddedToken("本", single_word=True, normalized=False),
        ]
    )
    tokenizer.add_special_tokens([AddedToken("<mask>", lstrip=True, rstrip=True, special=True), AddedToken("<SEP>", special=True, normalized=True)])
    return tokenizer


def odd_splits(texts, size):
    steps = [
        pre_tokenizers.Split("the", "merged_with_next"),
        split(r"\d+", "merged_with_previous"),
        split(r"[aeiou]", "contiguous"),
        split(r"[^\s]+", "removed", invert=True),
        split(r"\p{Han}|\p{^Latin}", "isolated", invert=True),
        split(r"(?<=x)y*|^b|c$", "merged_with_previous"),
        split(r"[\w\-]{2}", "merged_with_next"),
        pre_tokenizers.Split(".", "removed"),
    ]
    replaced = [normalizers.Replace(Regex(r"\s+"), " "), normalizers.Replace("e", ""), normalizers.Strip(), normalizers.Replace(Regex(r"^t|q*"), "Q")]
    tokenizer = train_bpe(texts, size, pre_tokenizers.Sequence(steps), normalizers.Sequence(replaced), specials=["[UNK]", "</s>"], unk_token="[UNK]")
    tokenizer.decoder = decoders.Sequence([decoders.Strip("a", 1, 0), decoders.Fuse(), decoders.Replace(Regex(r"(\w)\s*$"), "."), decoders.Strip("b", 2, 0)])
    return tokenizer


def metaspace(texts, size, scheme="always", normalizer=None):
    tokenizer = train_bpe(texts, size, pre_tokenizers.Metaspace(prepend_scheme=scheme), normalizer, specials=["[UNK]", "</s>"], unk_token="[UNK]")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme=scheme)
    tokenizer.add_tokens([AddedToken("the"), AddedToken("<x>", normalized=False)])
    return tokenizer


def metaspace_first(texts, size):
    return metaspace(texts, size, "first", normalizers.Strip(left=True, right=False))


def metaspace_never(texts, size):
    return metaspace(texts, size, "never", normalizers.Prepend("▁"))


def train_unigram(texts, size, byte_fallback):
    tokenizer = Tokenizer(models.Unigram())
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
    # All characters become tokens: let them be few.
    texts = ["".join(c for c in text if c < "\u0180") for text in texts]
    specials = ["<unk>", "<s>", "</s>"] + (BYTES if byte_fallback else [])
    tokenizer.train_from_iterator(texts, trainers.UnigramTrainer(vocab_size=size, special_tokens=specials, unk_token="<unk>", show_progress=False, max_piece_length=8))
    data = json.loads(tokenizer.to_str())
    data["model"]["byte_fallback"] = byte_fallback
    if byte_fallback:
        data["added_tokens"] = data["added_tokens"][:3]
    return Tokenizer.from_str(json.dumps(data))


def unigram(texts, size):
    tokenizer = train_unigram(texts, size, byte_fallback=False)
    tokenizer.decoder = decoders.Metaspace()
    return tokenizer


def unigram_with_bytes(texts, size):
    """The whole text is one piece."""
    tokenizer = train_unigram(texts, size, byte_fallback=True)
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(split=False)
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Metaspace()])
    return tokenizer


ALL = [
    gpt2,
    llama3,
    qwen2,
    o200k,
    deepseek,
    byte_level_normalizer,
    llama2,
    llama2_whole_pieces,
    mistral,
    gemma,
    unknown_characters,
    fused_unknown,
    dropped_characters,
    odd_added_tokens,
    odd_splits,
    metaspace,
    metaspace_first,
    metaspace_never,
    unigram,
    unigram_with_bytes,
]
END_OF_DOCUMENT = {"gpt2": "<|endoftext|>"}


def save(tokenizer, name, folder):
    """Writes a folder as a model has it. Some files spell things as older versions did."""
    folder.mkdir(parents=True, exist_ok=True)
    data = json.loads(tokenizer.to_str())
    if name in ("gpt2", "llama2", "fused_unknown"):
        data["model"]["merges"] = [merge if isinstance(merge, str) else " ".join(merge) for merge in data["model"]["merges"]]
    if name == "metaspace_never":
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": False, "prepend_scheme": "never"}
    if name == "metaspace":
        data["pre_tokenizer"] = {"type": "Metaspace", "replacement": "▁", "add_prefix_space": True}
    (folder / "tokenizer.json").write_text(json.dumps(data, ensure_ascii=False), "utf-8")
    (folder / "tokenizer_config.json").write_text(json.dumps({"eos_token": END_OF_DOCUMENT.get(name, "</s>")}))
