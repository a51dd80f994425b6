#include "checkpoint/sealed_json.h"

#include <gtest/gtest.h>

#include "checkpoint/checkpoint_tests.h"
#include "checkpoint/error.h"

namespace switchyard {
namespace {

using Json = nlohmann::json;

TEST(SealedJson, IsJsonThatReadsBack) {
  const TemporaryFolder folder;
  const Json content = {{"a", {1, 2}}, {"b", "text"}, {"c", 0.1}};
  for (const bool is_indented : {false, true}) {
    const std::string checksum = write_sealed_json(folder / "file", content, is_indented);
    const SealedJson read = read_sealed_json(folder / "file");
    EXPECT_EQ(read.content, content);
    EXPECT_EQ(read.checksum, checksum);
    Json plain = Json::parse(file_bytes(folder / "file"));
    EXPECT_EQ(plain["crc32c"], checksum);
    plain.erase("crc32c");
    EXPECT_EQ(plain, content);
  }
}

TEST(SealedJson, ReplacesBytesThatAreNoText) {
  const TemporaryFolder folder;
  write_sealed_json(folder / "file",
                    {{"path",
                      "a\xff"
                      "b"}},
                    false);
  EXPECT_EQ(read_sealed_json(folder / "file").content["path"],
            "a\xef\xbf\xbd"
            "b");
}

TEST(SealedJson, NoticesEveryFlippedBitAndEveryMissingByte) {
  const TemporaryFolder folder;
  const std::string path = (folder / "file").string();
  write_sealed_json(path, {{"step", 20}, {"list", {1, 2, 3}}}, true);
  const std::string bytes = file_bytes(path);
  const auto message = [&](const std::string& altered) {
    write_bytes(path, altered);
    return message_of<DamagedCheckpoint>([&] { read_sealed_json(path); });
  };
  const std::string expected = path + ": does not match its checksum: it was altered or cut short";
  for (size_t at = 0; at < bytes.size(); ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string altered = bytes;
      altered[at] = static_cast<char>(altered[at] ^ (1 << bit));
      EXPECT_EQ(message(altered), expected) << at;
    }
    EXPECT_EQ(message(bytes.substr(0, at)), expected) << at;
  }
  EXPECT_EQ(message(bytes + " "), expected);
  EXPECT_EQ(message(bytes), "");
}

TEST(SealedJson, SaysWhenTheFileIsMissing) {
  EXPECT_EQ(message_of<DamagedCheckpoint>([] { read_sealed_json("/none/file"); }),
            "cannot read /none/file: No such file or directory; check the path");
}

TEST(JsonField, TakesExactlyTheTypeAskedFor) {
  const Json object = {{"text", "a"},    {"whole", 3},        {"negative", -3},     {"real", 3.0},
                       {"list", {1, 2}}, {"mixed", {1, "a"}}, {"large", UINT64_MAX}};
  EXPECT_EQ(json_field<std::string>(object, "text", "f"), "a");
  EXPECT_EQ(json_field<int64_t>(object, "negative", "f"), -3);
  EXPECT_EQ(json_field<uint64_t>(object, "large", "f"), UINT64_MAX);
  EXPECT_EQ(json_field<std::vector<int64_t>>(object, "list", "f"), (std::vector<int64_t>{1, 2}));
  const auto message = [&](auto type, const char* name) {
    return message_of<CheckpointError>([&] { json_field<decltype(type)>(object, name, "f"); });
  };
  EXPECT_EQ(message(int64_t{}, "none"), "f: the field \"none\" is missing");
  EXPECT_EQ(message(int64_t{}, "real"), "f: the field \"real\" is 3.0, which is not its type");
  EXPECT_EQ(message(int64_t{}, "text"), "f: the field \"text\" is \"a\", which is not its type");
  EXPECT_NE(message(int64_t{}, "large"), "");
  EXPECT_NE(message(uint64_t{}, "negative"), "");
  EXPECT_NE(message(std::string{}, "whole"), "");
  EXPECT_NE(message(std::vector<int64_t>{}, "mixed"), "");
  EXPECT_NE(message(std::vector<int64_t>{}, "whole"), "");
  EXPECT_EQ(message_of<CheckpointError>([] { json_field<int64_t>(Json::array(), "a", "f"); }),
            "f: the field \"a\" is missing");
}

TEST(CheckFormat, TellsAnotherKindFromANewerVersion) {
  const auto check_it = [](const char* format, int64_t version) {
    check_format({{"format", format}, {"version", version}}, "switchyard index", 1, "f");
  };
  EXPECT_NO_THROW(check_it("switchyard index", 1));
  EXPECT_EQ(message_of<DamagedCheckpoint>([&] { check_it("other", 1); }),
            "f: is a \"other\", a \"switchyard index\" is expected");
  EXPECT_EQ(
      message_of<CheckpointError>([&] { check_it("switchyard index", 2); }),
      "f: is of version 2, this program knows versions up to 1: use the version that wrote it "
      "or a newer one");
}

}  // namespace
}  // namespace switchyard
