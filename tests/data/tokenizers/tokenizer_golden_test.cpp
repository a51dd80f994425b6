// Ids and texts that the packages gave for the tokenizers in tests/golden/tokenizers, made by
// tools/oracle/tokenizer_golden.py.

#include <filesystem>
#include <thread>

#include <gtest/gtest.h>
#include <nlohmann/json.hpp>

#include "data/tokenizer.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/tokenizers";

std::vector<std::string> golden_names() {
  std::vector<std::string> names;
  for (const auto& entry : fs::directory_iterator(kGolden)) {
    if (entry.is_directory()) {
      names.push_back(entry.path().filename());
    }
  }
  std::sort(names.begin(), names.end());
  return names;
}

std::string from_hex(const std::string& hex) {
  std::string bytes;
  for (size_t i = 0; i < hex.size(); i += 2) {
    bytes.push_back(static_cast<char>(std::stoi(hex.substr(i, 2), nullptr, 16)));
  }
  return bytes;
}

struct Golden {
  std::string bytes;
  std::vector<int32_t> ids;
  std::vector<int32_t> ids_with_special_tokens;  // empty: not said
  std::string kept;
  std::string skipped;
};

std::vector<Golden> read_golden(const fs::path& folder) {
  std::vector<Golden> all;
  for (const auto& json : nlohmann::json::parse(read_text(folder / "expected.json"))) {
    Golden golden;
    golden.bytes = from_hex(json.at("bytes"));
    golden.ids = json.at("ids").get<std::vector<int32_t>>();
    golden.ids_with_special_tokens = json.value("ids_with_special_tokens", std::vector<int32_t>());
    golden.kept = json.at("kept");
    golden.skipped = json.value("skipped", golden.kept);
    all.push_back(std::move(golden));
  }
  return all;
}

class GoldenTokenizer : public testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Tokenizer> tokenizer_ = make_tokenizer(kGolden / GetParam());
  std::vector<Golden> golden_ = read_golden(kGolden / GetParam());
};

TEST_P(GoldenTokenizer, GivesTheIdsOfThePackage) {
  ASSERT_FALSE(golden_.empty());
  for (const Golden& golden : golden_) {
    EXPECT_EQ(tokenizer_->encode(golden.bytes), golden.ids) << golden.bytes;
    // Once more, out of the cache of pieces.
    EXPECT_EQ(tokenizer_->encode(golden.bytes), golden.ids) << golden.bytes;
    if (!golden.ids_with_special_tokens.empty()) {
      EXPECT_EQ(tokenizer_->encode_with_special_tokens(golden.bytes),
                golden.ids_with_special_tokens);
    }
  }
}

TEST_P(GoldenTokenizer, GivesTheTextOfThePackage) {
  for (const Golden& golden : golden_) {
    EXPECT_EQ(tokenizer_->decode(golden.ids, SpecialTokens::kKeep), golden.kept);
    EXPECT_EQ(tokenizer_->decode(golden.ids, SpecialTokens::kSkip), golden.skipped);
  }
}

TEST_P(GoldenTokenizer, EncodesInSeveralThreadsAtOnce) {
  std::vector<std::thread> threads;
  std::vector<int> num_wrong(4);
  for (int& wrong : num_wrong) {
    threads.emplace_back([&] {
      for (const Golden& golden : golden_) {
        wrong += tokenizer_->encode(golden.bytes) != golden.ids ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  EXPECT_EQ(num_wrong, (std::vector<int>{0, 0, 0, 0}));
}

TEST_P(GoldenTokenizer, IsTheSameWhenItIsReadAgain) {
  EXPECT_EQ(make_tokenizer(kGolden / GetParam())->fingerprint(), tokenizer_->fingerprint());
  EXPECT_EQ(tokenizer_->name(), kGolden / GetParam());
}

INSTANTIATE_TEST_SUITE_P(All, GoldenTokenizer, testing::ValuesIn(golden_names()),
                         [](const auto& tested) { return tested.param; });

TEST(GoldenTokenizers, HaveFingerprintsOfTheirOwn) {
  std::map<uint64_t, std::string> seen;
  for (const std::string& name : golden_names()) {
    const uint64_t fingerprint = make_tokenizer(kGolden / name)->fingerprint();
    EXPECT_TRUE(seen.emplace(fingerprint, name).second) << name << " is " << seen[fingerprint];
  }
}

// One thread's cache of pieces serves one model at a time.
TEST(GoldenTokenizers, DoNotMixTheirPieces) {
  const auto one = make_tokenizer(kGolden / "llama3");
  const auto other = make_tokenizer(kGolden / "gpt2");
  const auto golden_of_one = read_golden(kGolden / "llama3");
  const auto golden_of_other = read_golden(kGolden / "gpt2");
  for (size_t i = 0; i < golden_of_one.size(); ++i) {
    EXPECT_EQ(one->encode(golden_of_one[i].bytes), golden_of_one[i].ids);
    EXPECT_EQ(other->encode(golden_of_other[i].bytes), golden_of_other[i].ids);
  }
}

}  // namespace
}  // namespace switchyard
