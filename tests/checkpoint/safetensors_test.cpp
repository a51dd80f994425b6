#include "checkpoint/safetensors.h"

#include <cstring>
#include <string>
#include <vector>

#include <gtest/gtest.h>

#include <ATen/ATen.h>

#include "base/crc32c.h"
#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

std::string length_of(uint64_t size) {
  return {reinterpret_cast<const char*>(&size), sizeof(size)};
}

std::string file_of(const std::string& header, const std::string& data = "") {
  return length_of(header.size()) + header + data;
}

bool equal_bytes(const at::Tensor& a, const at::Tensor& b) {
  const bool is_same_kind = a.scalar_type() == b.scalar_type() && a.sizes() == b.sizes();
  return is_same_kind &&
         (a.numel() == 0 || std::memcmp(a.contiguous().const_data_ptr(),
                                        b.contiguous().const_data_ptr(), a.nbytes()) == 0);
}

void write_all(const std::filesystem::path& path,
               const std::vector<std::pair<std::string, at::Tensor>>& tensors,
               const std::map<std::string, std::string>& metadata = {}) {
  std::vector<SafetensorsDeclaration> declarations;
  for (const auto& [name, tensor] : tensors) {
    declarations.push_back({name, tensor.scalar_type(), tensor.sizes().vec()});
  }
  SafetensorsWriter writer(path, declarations, metadata);
  for (const auto& [name, tensor] : tensors) {
    writer.write(tensor);
  }
  writer.finish();
}

// The message with which a file of these bytes is refused; empty when it is accepted. An accepted
// one is read to its last byte.
std::string refusal(const std::filesystem::path& path, const std::string& bytes) {
  write_bytes(path, bytes);
  return message_of<FileError>([&] {
    const SafetensorsFile file(path);
    int64_t total = 0;
    for (const SafetensorsEntry& entry : file.entries()) {
      const at::Tensor tensor = file.tensor(entry.name);
      const auto* mapped = static_cast<const char*>(tensor.const_data_ptr());
      const std::string copy = mapped == nullptr ? "" : std::string(mapped, tensor.nbytes());
      std::string read(copy.size(), '\0');
      file.read(entry, 0, read.data(), entry.num_bytes());
      EXPECT_EQ(copy, read);
      total += entry.num_bytes();
    }
    EXPECT_LE(total + 8, static_cast<int64_t>(bytes.size()));
  });
}

// safetensors.torch.save({"b": [True, False, True], "a": [[1., -2.]], "h": bfloat16 3.5},
// metadata={"format": "pt"}) of the Python library 0.8.0.
const std::string kOfThePythonLibrary =
    std::string("\xc8\0\0\0\0\0\0\0", 8) +
    R"({"__metadata__":{"format":"pt"},"a":{"dtype":"F32","shape":[1,2],"data_offsets":[0,8]},)"
    R"("h":{"dtype":"BF16","shape":[],"data_offsets":[8,10]},)"
    R"("b":{"dtype":"BOOL","shape":[3],"data_offsets":[10,13]}}   )" +
    std::string("\0\0\x80?\0\0\0\xc0`@\1\0\1", 13);

TEST(SafetensorsFile, ReadsAFileOfThePythonLibrary) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", kOfThePythonLibrary);
  const SafetensorsFile file(folder / "file");
  ASSERT_EQ(file.entries().size(), 3U);
  EXPECT_EQ(file.entries()[1].name, "h");
  EXPECT_EQ(file.metadata().at("format"), "pt");
  EXPECT_TRUE(equal_bytes(file.tensor("a"), at::tensor({1.F, -2.F}).view({1, 2})));
  EXPECT_TRUE(equal_bytes(file.tensor("h"), at::full({}, 3.5, at::kBFloat16)));
  EXPECT_TRUE(equal_bytes(file.tensor("b"), at::tensor({1, 0, 1}).to(at::kBool)));
  EXPECT_EQ(file.find("c"), nullptr);
  EXPECT_EQ(message_of<FileError>([&] { file.tensor("c"); }),
            (folder / "file").string() + ": has no tensor \"c\" among its 3");
}

TEST(SafetensorsFile, ReadsTensorsThatLieAtOddBytes) {
  const TemporaryFolder folder;
  // The header has 99 bytes: the fp64 value starts at byte 108.
  const std::string header = R"({"x":{"dtype":"F64","shape":[1],"data_offsets":[1,9]},)"
                             R"("u":{"dtype":"U8","shape":[],"data_offsets":[0,1]}})";
  const double value = 0.1;
  write_bytes(folder / "file",
              file_of(header, "\7" + std::string(reinterpret_cast<const char*>(&value), 8)));
  const SafetensorsFile file(folder / "file");
  EXPECT_NE(file.find("x")->begin % 8, 0);
  EXPECT_EQ(file.tensor("x").item<double>(), 0.1);
  EXPECT_EQ(file.tensor("u").item<int64_t>(), 7);
}

TEST(SafetensorsFile, KeepsItsTensorsReadableWhenItIsGone) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", kOfThePythonLibrary);
  at::Tensor kept;
  {
    const SafetensorsFile file(folder / "file");
    kept = file.tensor("a");
  }
  std::filesystem::remove(folder / "file");
  EXPECT_TRUE(equal_bytes(kept, at::tensor({1.F, -2.F}).view({1, 2})));
}

TEST(SafetensorsFile, ReadsPartOfATensorAndRefusesToReadBeyondIt) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", kOfThePythonLibrary);
  const SafetensorsFile file(folder / "file");
  const SafetensorsEntry& entry = *file.find("a");
  float second = 0;
  file.read(entry, 4, &second, 4);
  EXPECT_EQ(second, -2.F);
  for (const auto& [offset, size] : {std::pair{4, 5}, {-1, 1}, {9, 0}, {0, -1}}) {
    const auto read = [&, from = offset, count = size] { file.read(entry, from, &second, count); };
    EXPECT_NE(message_of<FileError>(read).find("tensor \"a\" has 8 bytes"), std::string::npos);
  }
}

TEST(SafetensorsFile, RefusesWhatTheFormatForbidsAndSaysWhat) {
  const TemporaryFolder folder;
  const std::filesystem::path path = folder / "bad";
  // Byte numbers are counted by hand: {"x":...} with one F32 has 54 bytes, with "y" 107.
  const std::string four = "1234";
  const std::string eight = "12345678";
  const auto entry = [](const std::string& dtype, const std::string& shape,
                        const std::string& offsets) {
    return "{\"dtype\":" + dtype + ",\"shape\":" + shape + ",\"data_offsets\":" + offsets + "}";
  };
  const auto one = [&](const std::string& dtype, const std::string& shape,
                       const std::string& offsets) {
    return file_of("{\"x\":" + entry(dtype, shape, offsets) + "}", four);
  };
  const auto two = [&](const std::string& first, const std::string& second) {
    return file_of("{\"x\":" + first + ",\"y\":" + second + "}", eight);
  };
  const std::string front = entry("\"F32\"", "[1]", "[0,4]");
  const std::vector<std::pair<std::string, std::string>> cases = {
      {"", "is not a safetensors file: it has 0 bytes, at least 8 are expected"},
      {length_of(100'000'001), "its header would have 100000001 bytes, at most 100000000"},
      {length_of(UINT64_MAX) + "{}", "its header would have 18446744073709551615 bytes"},
      {length_of(3) + "{}", "its header ends at byte 11, the file at 10: it is cut short"},
      {file_of("[1]"), "is not a safetensors file: its header does not start with {"},
      {file_of(" {}"), "its header does not start with {"},
      {file_of("{\"x\":"), "the header is not JSON"},
      {file_of("{}}"), "the header is not JSON"},
      {file_of("{\"\xff\":1}"), "the header is not JSON"},
      {file_of(std::string("{}\0{}", 5)), "the header holds a zero byte"},
      {file_of(R"({"x":{"a":[[1]]}})"), "nested deeper than the format allows"},
      {two(front, front).replace(two(front, front).find("\"y\""), 3, "\"x\""),
       "\"x\" comes twice in the header"},
      {file_of(R"({"x":{"dtype":"F32","dtype":"F32","shape":[1],"data_offsets":[0,4]}})", four),
       "\"dtype\" comes twice in the header"},
      {file_of(R"({"x":1})"), "exactly dtype, shape and data_offsets are expected"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1]}})"), "exactly dtype, shape and data_offsets"},
      {file_of(R"({"x":{"dtype":"F32","shape":[1],"data_offsets":[0,4],"more":1}})", four),
       "exactly dtype, shape and data_offsets"},
      {one("\"F31\"", "[1]", "[0,4]"), "dtype is \"F31\": one of F64, F32, BF16"},
      {one("32", "[1]", "[0,4]"), "dtype is 32: one of"},
      {one("\"F32\"", "[1.0]", "[0,4]"), "shape is 1.0: a whole number from 0 up is expected"},
      {one("\"F32\"", "[-1]", "[0,4]"), "shape is -1: a whole number"},
      {one("\"F32\"", "[\"1\"]", "[0,4]"), "shape is \"1\": a whole number"},
      {one("\"F32\"", "[9223372036854775808]", "[0,4]"), "is 9223372036854775808: a whole"},
      {one("\"F32\"", "1", "[0,4]"), "shape is 1: a list of numbers is expected"},
      {one("\"F32\"", "[2]", "[0,4]"), "has 4 bytes, its dtype and shape [2] make 8"},
      {one("\"F32\"", "[4611686018427387904]", "[0,4]"), "is larger than any file"},
      {one("\"F32\"", "[4294967296,4294967296]", "[0,0]"), "is larger than any file"},
      {one("\"F32\"", "[1]", "[0]"), "data_offsets are [0]: begin and end are expected"},
      {one("\"F32\"", "[1]", "[4,0]"), "data_offsets are [4, 0]: begin and end"},
      {one("\"U8\"", "[1]", "[9223372036854775806,9223372036854775807]"), "ends past any file"},
      {one("\"F32\"", "[2]", "[0,8]"), "ends at byte 70, the file at 66: it is cut short"},
      {one("\"U8\"", "[3]", "[0,3]"), "1 bytes follow the last tensor"},
      {file_of("{}", "1"), "1 bytes follow the last tensor"},
      {two(front, front),
       "tensor \"y\" starts at byte 115, the one before it ends at 119: they "
       "overlap"},
      {two(front, entry("\"U8\"", "[3]", "[5,8]")),
       "starts at byte 119, the one before it ends at 118: a gap"},
      {two(entry("\"U8\"", "[7]", "[1,8]"), entry("\"U8\"", "[0]", "[1,1]")), "a gap"},
      {file_of(R"({"__metadata__":[]})"), "__metadata__ is not an object of texts"},
      {file_of(R"({"__metadata__":{"a":1}})"), "__metadata__ \"a\" is not a text"},
  };
  for (const auto& [bytes, expected] : cases) {
    const std::string message = refusal(path, bytes);
    EXPECT_NE(message.find(expected), std::string::npos) << message << "\nexpected " << expected;
    EXPECT_TRUE(message.starts_with(path.string())) << message;
  }
  EXPECT_EQ(refusal(path, one("\"F32\"", "[1]", "[0,4]")), "");
  EXPECT_EQ(refusal(path, two(front, entry("\"U8\"", "[0,4]", "[4,4]"))).find("4 bytes follow"),
            path.string().size() + 2);
}

TEST(SafetensorsFile, NamesAFileThatIsMissingOrNoFile) {
  const TemporaryFolder folder;
  EXPECT_EQ(
      message_of<FileError>([&] { SafetensorsFile file(folder / "none"); }),
      "cannot read " + (folder / "none").string() + ": No such file or directory; check the path");
  EXPECT_EQ(message_of<FileError>([&] { SafetensorsFile file(folder.path()); }),
            folder.path().string() + " is not a regular file");
}

TEST(SafetensorsFile, RefusesAFileCutShortAnywhere) {
  const TemporaryFolder folder;
  for (size_t size = 0; size < kOfThePythonLibrary.size(); ++size) {
    EXPECT_NE(refusal(folder / "file", kOfThePythonLibrary.substr(0, size)), "") << size;
  }
  EXPECT_EQ(refusal(folder / "file", kOfThePythonLibrary), "");
}

// Many flips make another valid file (another name, another dtype of the same size); none may make
// one that is read beyond its bytes.
TEST(SafetensorsFile, IsSafeToReadWithAnyBitOfLengthAndHeaderFlipped) {
  const TemporaryFolder folder;
  const size_t header_end = 8 + 0xc8;
  int num_refused = 0;
  for (size_t at = 0; at < header_end; ++at) {
    for (int bit = 0; bit < 8; ++bit) {
      std::string bytes = kOfThePythonLibrary;
      bytes[at] = static_cast<char>(bytes[at] ^ (1 << bit));
      num_refused += refusal(folder / "file", bytes).empty() ? 0 : 1;
    }
  }
  EXPECT_GT(num_refused, 1300);  // of 1664
}

TEST(SafetensorsWriter, WritesWhatItReadsBackForEveryDtypeAndShape) {
  const TemporaryFolder folder;
  std::vector<std::pair<std::string, at::Tensor>> tensors;
  for (const auto dtype :
       {at::kDouble, at::kFloat, at::kBFloat16, at::kHalf, at::kLong, at::kInt, at::kShort,
        at::kChar, at::kByte, at::kBool, at::kUInt16, at::kUInt32, at::kUInt64, at::kFloat8_e4m3fn,
        at::kFloat8_e5m2, at::kFloat8_e8m0fnu}) {
    const std::string name = c10::toString(dtype);
    tensors.emplace_back(name, at::arange(1, 7).view({2, 3}).to(dtype));
    tensors.emplace_back(name + " scalar", at::ones({}).to(dtype));
    tensors.emplace_back(name + " empty", at::empty({3, 0}, dtype));
  }
  const std::map<std::string, std::string> metadata{{"a \"quoted\" key", "line\nbreak"}, {"b", ""}};
  write_all(folder / "file", tensors, metadata);
  const SafetensorsFile file(folder / "file");
  EXPECT_EQ(file.metadata(), metadata);
  ASSERT_EQ(file.entries().size(), tensors.size());
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(equal_bytes(file.tensor(name), tensor)) << name;
  }
}

TEST(SafetensorsWriter, WritesTheBytesOfTheFormat) {
  const TemporaryFolder folder;
  write_all(folder / "file", {{"x", at::tensor({1, 2}).to(at::kByte)}, {"y", at::ones({})}});
  // 8 + 104 bytes of header, filled up to a multiple of 64.
  const std::string header = R"({"x":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},)"
                             R"("y":{"dtype":"F32","shape":[],"data_offsets":[2,6]}})";
  EXPECT_EQ(file_bytes(folder / "file"), length_of(120) + header +
                                             std::string(120 - header.size(), ' ') +
                                             std::string("\1\2\0\0\x80?", 6));
}

TEST(SafetensorsWriter, WritesAnEmptyFile) {
  const TemporaryFolder folder;
  write_all(folder / "file", {});
  EXPECT_TRUE(SafetensorsFile(folder / "file").entries().empty());
}

TEST(SafetensorsWriter, WritesTensorsOfAnyStrides) {
  const TemporaryFolder folder;
  const at::Tensor large = at::arange(3'000'000, at::kFloat).view({3, 1000, 1000});  // 12 MB
  const std::vector<std::pair<std::string, at::Tensor>> tensors = {
      {"transposed", large.transpose(0, 2)},
      {"slice", large.narrow(2, 1, 900)},
      {"repeated", at::ones({1, 1}).expand({1, 2'000'000})},
      {"small", at::arange(6).view({2, 3}).t()}};
  write_all(folder / "file", tensors);
  const SafetensorsFile file(folder / "file");
  for (const auto& [name, tensor] : tensors) {
    EXPECT_TRUE(equal_bytes(file.tensor(name), tensor)) << name;
  }
}

TEST(SafetensorsWriter, GivesTheChecksumOfEachBlockAndOfTheHeader) {
  const TemporaryFolder folder;
  const at::Tensor values = at::arange(9 << 20, at::kByte).view({9, 1 << 20});  // 9 MB
  SafetensorsWriter writer(folder / "file",
                           {{"x", at::kByte, {1 << 20, 9}}, {"y", at::kByte, {0}}});
  const std::vector<uint32_t> checksums = writer.write(values.t());
  EXPECT_TRUE(writer.write(at::empty({0}, at::kByte)).empty());
  writer.finish();
  const std::string bytes = file_bytes(folder / "file");
  ASSERT_EQ(static_cast<int64_t>(bytes.size()), writer.num_bytes());
  const size_t begin = bytes.size() - (9 << 20);
  const size_t block = 4 << 20;
  EXPECT_EQ(checksums, (std::vector<uint32_t>{crc32c(bytes.data() + begin, block),
                                              crc32c(bytes.data() + begin + block, block),
                                              crc32c(bytes.data() + begin + 2 * block, 1 << 20)}));
  EXPECT_EQ(writer.header_checksum(), crc32c(bytes.data(), begin));
  EXPECT_EQ(SafetensorsFile(folder / "file").header_checksum(), writer.header_checksum());
}

TEST(SafetensorsWriter, LeavesNothingBehindUnlessItIsFinished) {
  const TemporaryFolder folder;
  {
    SafetensorsWriter writer(folder / "file", {{"x", at::kFloat, {2}}, {"y", at::kFloat, {2}}});
    writer.write(at::ones({2}));
    EXPECT_EQ(message_of<ShapeError>([&] { writer.finish(); }),
              "2 tensors were declared, 1 written");
  }
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

TEST(SafetensorsWriter, RefusesWhatWasNotDeclared) {
  const TemporaryFolder folder;
  SafetensorsWriter writer(folder / "file", {{"x", at::kFloat, {2, 3}}});
  EXPECT_EQ(message_of<ShapeError>([&] {
              writer.write(at::ones({3, 2}));
            }),
            "tensor \"x\" is Float [3, 2], it was declared as Float [2, 3]");
  SafetensorsWriter full(folder / "full", {});
  EXPECT_EQ(message_of<ShapeError>([&] { full.write(at::ones({1})); }),
            "more tensors are written than the 0 declared");
}

TEST(SafetensorsWriter, RefusesWhatTheFormatCannotHold) {
  const TemporaryFolder folder;
  const std::string path = (folder / "file").string();
  const auto refuse = [&](const std::vector<SafetensorsDeclaration>& declarations) {
    return message_of<FileError>([&] { SafetensorsWriter writer(path, declarations); });
  };
  EXPECT_EQ(refuse({{"x", at::kFloat, {}}, {"x", at::kFloat, {}}}),
            path + ": tensor \"x\" comes twice");
  EXPECT_EQ(refuse({{"__metadata__", at::kFloat, {}}}),
            path + ": tensor \"__metadata__\" comes twice");
  EXPECT_EQ(refuse({{"\xff", at::kFloat, {}}}), path + ": a name is not UTF-8 text");
  EXPECT_TRUE(refuse({{"x", at::kComplexFloat, {}}})
                  .starts_with("safetensors files cannot hold ComplexFloat: one of F64, F32"));
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

// Every write to /dev/full ends as on a full disk.
TEST(SafetensorsWriter, NamesTheFileThatDoesNotFitOnTheDisk) {
  const TemporaryFolder folder;
  std::filesystem::create_symlink("/dev/full", folder / "file.partial");
  const auto write = [&] { write_all(folder / "file", {{"x", at::zeros({1 << 20})}}); };
  EXPECT_EQ(message_of<FileError>(write),
            "cannot write " + (folder / "file").string() +
                ": No space left on device; free space there or write elsewhere");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
}

}  // namespace
}  // namespace switchyard
