#include "data/indexed_dataset.h"

#include <cstring>

#include <gtest/gtest.h>

#include "base/error.h"
#include "base/random.h"
#include "data/byte_tokenizer.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

const std::string kAdvice = "; write the data set again with `switchyard tokenize`";

std::string from_hex(const std::string& digits) {
  std::string bytes;
  for (size_t i = 0; i < digits.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(digits.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

std::vector<int64_t> all_tokens(const IndexedDataset& set) {
  std::vector<int64_t> tokens(static_cast<size_t>(set.num_tokens()));
  set.read(0, tokens);
  return tokens;
}

// What megatron-core 0.16.1's IndexedDatasetBuilder wrote for add_item [1, 2, 3], add_item [4],
// end_document, end_document, add_item [5, 256], end_document, finalize, with numpy.uint16.
const std::string kManyBin = from_hex("010002000300040005000001");
const std::string kManyIdx = from_hex(
    "4d4d494449445800000100000000000000080300000000000000040000000000000003000000010000000200000000"
    "0000000000000006000000000000000800000000000000000000000000000002000000000000000200000000000000"
    "0"
    "300000000000000");

std::string write_many(const std::string& folder) {
  write_file(folder + "many.bin", kManyBin);
  write_file(folder + "many.idx", kManyIdx);
  return folder + "many";
}

std::string error_of_opening(const std::string& prefix) {
  return error_of<FileError>([&] { IndexedDataset set(prefix); });
}

TEST(IndexedDataset, ReadsWhatMegatronWrote) {
  const IndexedDataset set(write_many(fresh_folder()));
  EXPECT_EQ(set.num_sequences(), 3);
  EXPECT_EQ(set.num_documents(), 3);
  EXPECT_EQ(set.num_tokens(), 6);
  EXPECT_EQ(set.token_type(), TokenType::kUint16);
  EXPECT_FALSE(set.sidecar().has_value());
  EXPECT_EQ(all_tokens(set), (std::vector<int64_t>{1, 2, 3, 4, 5, 256}));
  const std::vector<int64_t> starts = {0, 4, 4, 6};  // the second document is empty
  for (int64_t document = 0; document <= 3; ++document) {
    EXPECT_EQ(set.document_start(document), starts[static_cast<size_t>(document)]);
  }
}

TEST(IndexedDataset, ReadsAnyStretchOfTheStream) {
  const IndexedDataset set(write_counting_dataset(fresh_folder() + "set", 300));
  for (const int64_t first : {0, 1, 255, 290}) {
    std::vector<int64_t> tokens(10);
    set.read(first, tokens);
    for (int64_t i = 0; i < 10; ++i) {
      EXPECT_EQ(tokens[static_cast<size_t>(i)], (first + i) % 256);
    }
  }
  std::vector<int64_t> tokens(10);
  EXPECT_EQ(error_of<FileError>([&] { set.read(291, tokens); }),
            set.prefix() + ".bin has 300 tokens, 291 to 300 were asked for");
  EXPECT_THROW(set.read(-1, tokens), FileError);
}

// Every whole-number type that Megatron can store, two tokens each: 1 and 100.
TEST(IndexedDataset, ReadsEveryTokenType) {
  const std::string folder = fresh_folder();
  const std::vector<std::pair<char, size_t>> types = {{1, 1}, {2, 1}, {3, 2},
                                                      {4, 4}, {5, 8}, {8, 2}};
  for (const auto& [code, bytes] : types) {
    std::string idx = kManyIdx.substr(0, 17) + code + from_hex("01000000000000000200000000000000") +
                      from_hex("02000000") + std::string(8, '\0') + std::string(8, '\0') +
                      from_hex("0100000000000000");
    std::string bin(2 * bytes, '\0');
    bin[0] = 1;
    bin[bytes] = 100;
    write_file(folder + "set.idx", idx);
    write_file(folder + "set.bin", bin);
    EXPECT_EQ(all_tokens(IndexedDataset(folder + "set")), (std::vector<int64_t>{1, 100}));
  }
}

TEST(IndexedDataset, OpensAnEmptySet) {
  const IndexedDataset set(write_dataset(fresh_folder() + "set", {}));
  EXPECT_EQ(set.num_documents(), 0);
  EXPECT_EQ(set.num_tokens(), 0);
}

TEST(IndexedDataset, RefusesEveryTornIndexAndEveryTornBin) {
  for (const bool has_sidecar : {true, false}) {
    const std::string folder = fresh_folder();
    const std::string prefix =
        write_dataset(folder + "set", {{1, 2, 256}, {3, 256}, {4, 5, 6, 256}});
    if (!has_sidecar) {
      std::filesystem::remove(prefix + ".json");
    }
    for (const char* suffix : {".idx", ".bin", ".json"}) {
      if (!std::filesystem::exists(prefix + suffix)) {
        continue;
      }
      const std::string whole = read_file(prefix + suffix);
      // The sidecar ends in "}\n".
      const size_t limit = whole.size() - (std::string(suffix) == ".json" ? 1 : 0);
      for (size_t size = 0; size < limit; ++size) {
        write_file(prefix + suffix, whole.substr(0, size));
        const std::string error = error_of_opening(prefix);
        EXPECT_NE(error.find(prefix + suffix), std::string::npos) << size << ": " << error;
        EXPECT_EQ(error.find('\n'), std::string::npos) << error;
      }
      write_file(prefix + suffix, whole + "x");
      EXPECT_NE(error_of_opening(prefix), "") << suffix;
      write_file(prefix + suffix, whole);
      EXPECT_EQ(error_of_opening(prefix), "");
    }
  }
}

TEST(IndexedDataset, FindsEveryFlippedByteOfTheIndex) {
  const std::string prefix =
      write_dataset(fresh_folder() + "set", {{1, 2, 256}, {3, 256}, {4, 5, 6, 256}});
  const std::string whole = read_file(prefix + ".idx");
  for (size_t i = 0; i < whole.size(); ++i) {
    for (const char mask : {'\x01', '\x80', '\xff'}) {
      std::string flipped = whole;
      flipped[i] = static_cast<char>(flipped[i] ^ mask);
      write_file(prefix + ".idx", flipped);
      EXPECT_NE(error_of_opening(prefix), "") << i;
    }
  }
}

// Without the sidecar's checksum some changes make another valid index; none may crash.
TEST(IndexedDataset, SurvivesRandomIndices) {
  const std::string prefix = write_many(fresh_folder());
  const RandomStream random(1, "fuzz");
  int num_opened = 0;
  for (uint64_t i = 0; i < 3000; ++i) {
    std::string idx = kManyIdx;
    for (uint64_t change = 0; change < 1 + i % 3; ++change) {
      const uint64_t at = 10 * i + 2 * change;
      idx[random.below(at, idx.size())] = static_cast<char>(random.bits(at + 1));
    }
    write_file(prefix + ".idx", idx);
    try {
      const IndexedDataset set(prefix);
      num_opened += 1;
      std::vector<int64_t> tokens(static_cast<size_t>(set.num_tokens()));
      set.read(0, tokens);
      for (int64_t document = 0; document <= set.num_documents(); ++document) {
        EXPECT_GE(set.document_start(document), 0);
        EXPECT_LE(set.document_start(document), set.num_tokens());
      }
    } catch (const FileError&) {
    }
  }
  EXPECT_LT(num_opened, 300);
}

// `bytes` of the index at `offset` replaced by a little-endian number.
template <class T>
std::string error_with(const std::string& prefix, size_t offset, T value) {
  std::string idx = kManyIdx;
  std::memcpy(idx.data() + offset, &value, sizeof(T));
  write_file(prefix + ".idx", idx);
  return error_of_opening(prefix);
}

// Layout of kManyIdx: lengths at 34, pointers at 46, document bounds at 70, end at 102.
TEST(IndexedDataset, SaysWhichFieldIsWrongAndWhatToDo) {
  const std::string prefix = write_many(fresh_folder());
  const std::string idx = prefix + ".idx";
  const std::string bin = prefix + ".bin";
  EXPECT_EQ(error_with(prefix, 0, 'X'),
            idx +
                " is not an index of tokens: it does not begin with MMIDIDX; give the prefix of "
                "a .bin and .idx pair");
  EXPECT_EQ(error_with(prefix, 9, uint64_t{2}), idx + " has version 2, expected 1" + kAdvice);
  EXPECT_EQ(error_with(prefix, 17, uint8_t{7}),
            idx + " has token type 7, expected 1, 2, 3, 4, 5 or 8 (whole numbers)" + kAdvice);
  EXPECT_EQ(error_with(prefix, 18, uint64_t{4}),
            idx + " has 102 bytes, 4 sequences and 3 documents make 114" + kAdvice);
  EXPECT_EQ(error_with(prefix, 18, ~uint64_t{0}),
            idx + " announces 18446744073709551615 sequences and 4 document bounds in 102 bytes" +
                kAdvice);
  EXPECT_EQ(error_with(prefix, 26, uint64_t{0}),
            idx + " announces 3 sequences and 0 document bounds in 102 bytes" + kAdvice);
  EXPECT_EQ(error_with(prefix, 38, int32_t{-1}),
            idx + ": sequence 1 of -1 tokens begins at byte 6, expected 6" + kAdvice);
  EXPECT_EQ(error_with(prefix, 54, int64_t{4}),
            idx + ": sequence 1 of 1 tokens begins at byte 4, expected 6" + kAdvice);
  EXPECT_EQ(error_with(prefix, 42, int32_t{3}),
            bin + " has 12 bytes, but sequence 2 of " + idx +
                " ends at byte 14: it is cut short or belongs to another index" + kAdvice);
  EXPECT_EQ(error_with(prefix, 42, int32_t{1}), bin + " has 12 bytes, expected 10 by " + idx +
                                                    ": it belongs to another index" + kAdvice);
  EXPECT_EQ(error_with(prefix, 70, int64_t{1}),
            idx + ": document bound 0 is 1, expected 0 to 0" + kAdvice);
  EXPECT_EQ(error_with(prefix, 86, int64_t{1}),
            idx + ": document bound 2 is 1, expected 2 to 3" + kAdvice);
  EXPECT_EQ(error_with(prefix, 86, int64_t{4}),
            idx + ": document bound 2 is 4, expected 2 to 3" + kAdvice);
  EXPECT_EQ(error_with(prefix, 94, int64_t{2}),
            idx + ": the last document ends with sequence 2 of 3" + kAdvice);

  write_file(idx, kManyIdx + std::string(3, '\0'));
  EXPECT_EQ(error_of_opening(prefix),
            idx +
                " has 105 bytes, 3 sequences and 3 documents make 102 (with multimodal modes: not "
                "supported)" +
                kAdvice);
  write_file(idx, kManyIdx.substr(0, 20));
  EXPECT_EQ(error_of_opening(prefix), idx + " has 20 bytes, its header alone has 34" + kAdvice);
  std::filesystem::remove(idx);
  EXPECT_EQ(error_of_opening(prefix), "cannot read " + idx + ": No such file or directory");
}

TEST(IndexedDataset, NoticesASidecarOfAnotherSet) {
  const std::string folder = fresh_folder();
  write_dataset(folder + "a", {{1, 2, 256}});
  write_dataset(folder + "b", {{1, 256}});
  write_dataset(folder + "c", {{7, 256}});
  write_file(folder + "b.json", read_file(folder + "a.json"));
  EXPECT_EQ(error_of_opening(folder + "b"),
            folder + "b.json states 1 documents and 3 tokens, but " + folder +
                "b.idx has 1 and 2: they are of different data sets" + kAdvice);
  // The same counts: the tokens differ, which only the checksum of all of them tells.
  write_dataset(folder + "b", {{1, 256}});
  write_file(folder + "b.bin", read_file(folder + "c.bin"));
  const IndexedDataset set(folder + "b");
  EXPECT_NE(error_of<FileError>([&] { set.verify_checksum(); }).find("b.bin has checksum "),
            std::string::npos);
}

TEST(IndexedDataset, VerifiesTheChecksumOfItsTokens) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{1, 2, 256}});
  IndexedDataset(prefix).verify_checksum();
  std::string bin = read_file(prefix + ".bin");
  for (size_t i = 0; i < bin.size(); ++i) {
    std::string flipped = bin;
    flipped[i] = static_cast<char>(flipped[i] ^ 4);
    write_file(prefix + ".bin", flipped);
    const std::string error =
        error_of<FileError>([&] { IndexedDataset(prefix).verify_checksum(); });
    EXPECT_EQ(error.find(prefix + ".bin has checksum "), 0U) << error;
    EXPECT_NE(error.find(": the tokens were altered" + kAdvice), std::string::npos) << error;
  }
  std::filesystem::remove(prefix + ".json");
  EXPECT_EQ(error_of<FileError>([&] { IndexedDataset(prefix).verify_checksum(); }),
            prefix + ".json is missing, and with it the checksum of " + prefix + ".bin" + kAdvice);
}

TEST(IndexedDataset, RefusesTokensOutsideTheVocabulary) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{1, 2, 256}});
  std::string bin = read_file(prefix + ".bin");
  bin[3] = 1;  // token 1 becomes 2 + 256
  write_file(prefix + ".bin", bin);
  EXPECT_EQ(error_of<FileError>([&] { all_tokens(IndexedDataset(prefix)); }),
            prefix + ".bin: token 1 is 258, outside the vocabulary of 257: the file was altered" +
                kAdvice);
}

class OtherTokenizer : public ByteTokenizer {
 public:
  std::string name() const override { return "other"; }
  uint64_t fingerprint() const override { return 1; }
};

TEST(IndexedDataset, KnowsWhichTokenizerMadeIt) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{1, 2, 256}});
  IndexedDataset set(prefix);
  EXPECT_EQ(set.check_tokenizer(ByteTokenizer(), 257, false), std::nullopt);
  EXPECT_EQ(error_of<ConfigError>([&] { set.check_tokenizer(OtherTokenizer(), 257, true); }),
            "data.tokenizer is \"other\" (0000000000000001), but " + prefix +
                " was made with \"bytes\" (50fef12e046d7d5e): set data.tokenizer to the one of the "
                "data, or tokenize again");
}

// As made by Megatron: allowed when the user says which tokenizer it is, and every id that is read
// must fit.
TEST(IndexedDataset, TakesDataWithoutASidecarWhenItsTokenizerIsStated) {
  const std::string prefix = write_dataset(fresh_folder() + "set", {{1, 2, 256}});
  std::filesystem::remove(prefix + ".json");
  IndexedDataset set(prefix);
  EXPECT_EQ(error_of<FileError>([&] { set.check_tokenizer(ByteTokenizer(), 257, false); }),
            prefix +
                ".json is missing, which names the tokenizer of the data; state it as "
                "data.tokenizer, or write the data set again with `switchyard tokenize`");
  EXPECT_EQ(
      set.check_tokenizer(ByteTokenizer(), 257, true),
      prefix + ".bin has no " + prefix +
          ".json that names its tokenizer: taken to be bytes, each id checked against its 257 "
          "when it is read");
  EXPECT_EQ(error_of<FileError>([&] { set.check_tokenizer(ByteTokenizer(), 256, true); }),
            prefix +
                ".bin: token 2 is 256, outside the vocabulary of 256: the data, which have no " +
                prefix + ".json, were made with another tokenizer; state it as data.tokenizer");
}

TEST(IndexedDataset, FindsTheDocumentOfAToken) {
  const IndexedDataset set(write_dataset(fresh_folder() + "set", {{1, 2}, {}, {3}, {4, 5, 6}}));
  std::vector<int64_t> documents;
  for (int64_t token = 0; token < set.num_tokens(); ++token) {
    documents.push_back(set.document_of(token));
  }
  EXPECT_EQ(documents, (std::vector<int64_t>{0, 0, 2, 3, 3, 3}));
}

}  // namespace
}  // namespace switchyard
