#include "data/text_source.h"

#include <gtest/gtest.h>
#include <zlib.h>
#include <zstd.h>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

std::string gzip(const std::string& text) {
  z_stream stream{};
  constexpr int kGzip = 16;
  deflateInit2(&stream, 6, Z_DEFLATED, MAX_WBITS + kGzip, 8, Z_DEFAULT_STRATEGY);
  std::string out(deflateBound(&stream, text.size()) + 64, '\0');
  stream.next_in = reinterpret_cast<Bytef*>(const_cast<char*>(text.data()));
  stream.avail_in = static_cast<uInt>(text.size());
  stream.next_out = reinterpret_cast<Bytef*>(out.data());
  stream.avail_out = static_cast<uInt>(out.size());
  EXPECT_EQ(deflate(&stream, Z_FINISH), Z_STREAM_END);
  out.resize(stream.total_out);
  deflateEnd(&stream);
  return out;
}

std::string zstd(const std::string& text) {
  std::string out(ZSTD_compressBound(text.size()), '\0');
  out.resize(ZSTD_compress(out.data(), out.size(), text.data(), text.size(), 3));
  return out;
}

std::string read_all(const std::string& path, size_t step) {
  const auto source = open_text(path);
  std::string all;
  std::string block(step, '\0');
  while (const size_t got = source->read(block.data(), step)) {
    all.append(block, 0, got);
  }
  EXPECT_EQ(source->consumed(), static_cast<int64_t>(std::filesystem::file_size(path)));
  return all;
}

// Compresses badly and well, in turn.
std::string example() {
  std::string text;
  uint32_t state = 1;
  for (int i = 0; i < 400'000; ++i) {
    state = state * 1664525 + 1013904223;
    text += i / 1000 % 2 == 0 ? static_cast<char>(state >> 24U) : 'a';
  }
  return text;
}

TEST(OpenText, ReadsPlainAndCompressedFilesTheSame) {
  const std::string folder = fresh_folder();
  const std::string text = example();
  for (const size_t step : {size_t{1} << 20, size_t{4096}, size_t{999}}) {
    EXPECT_TRUE(read_all(write_file(folder + "a.txt", text), step) == text);
    EXPECT_TRUE(read_all(write_file(folder + "a.txt.gz", gzip(text)), step) == text);
    EXPECT_TRUE(read_all(write_file(folder + "a.txt.zst", zstd(text)), step) == text);
  }
}

// As `cat a.gz b.gz` and parallel compressors make them.
TEST(OpenText, ReadsSeveralPartsOneAfterTheOther) {
  const std::string folder = fresh_folder();
  const std::string text = example();
  EXPECT_TRUE(read_all(write_file(folder + "a.gz", gzip(text) + gzip("") + gzip("end")), 4096) ==
              text + "end");
  EXPECT_TRUE(read_all(write_file(folder + "a.zst", zstd(text) + zstd("") + zstd("end")), 4096) ==
              text + "end");
}

TEST(OpenText, NamesADamagedOrTornFile) {
  const std::string folder = fresh_folder();
  const auto error = [&](const std::string& name, const std::string& bytes) {
    const std::string path = write_file(folder + name, bytes);
    const std::string text = error_of<FileError>([&] { read_all(path, 4096); });
    EXPECT_EQ(text.substr(0, path.size()), path);
    return text.substr(std::min(path.size(), text.size()));
  };
  const std::string text = example();
  EXPECT_EQ(error("cut.gz", gzip(text).substr(0, 1000)),
            " is cut short: its last gzip member has no end; fetch the file again");
  EXPECT_EQ(error("cut.zst", zstd(text).substr(0, 1000)),
            " is cut short: its last zstd frame has no end; fetch the file again");
  EXPECT_NE(error("plain.gz", "just text").find(" is no gzip file or is damaged near byte "),
            std::string::npos);
  EXPECT_NE(error("plain.zst", "just text").find(" is no zstd file or is damaged near byte "),
            std::string::npos);
  std::string altered = gzip(text);
  altered[altered.size() / 2] = static_cast<char>(~altered[altered.size() / 2]);
  EXPECT_NE(error("altered.gz", altered).find(" is no gzip file or is damaged near byte "),
            std::string::npos);
}

TEST(UncompressedName, LeavesTheSuffixOut) {
  EXPECT_EQ(uncompressed_name("a.txt.gz"), "a.txt");
  EXPECT_EQ(uncompressed_name("a.jsonl.zst"), "a.jsonl");
  EXPECT_EQ(uncompressed_name("gz.txt"), "gz.txt");
}

}  // namespace
}  // namespace switchyard
