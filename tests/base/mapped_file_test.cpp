#include "base/mapped_file.h"

#include <cstdio>
#include <filesystem>
#include <fstream>

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

std::string write_file(const std::string& name, const std::string& text) {
  std::string path = testing::TempDir() + "mapped_file_test." + name;
  std::ofstream(path, std::ios::binary) << text;
  return path;
}

std::string text_of(const MappedFile& file) {
  return {reinterpret_cast<const char*>(file.bytes().data()), file.bytes().size()};
}

TEST(MappedFile, ShowsTheBytesOfTheFile) {
  MappedFile file(write_file("bytes", std::string("a\0b\xff", 4)));
  EXPECT_EQ(text_of(file), std::string("a\0b\xff", 4));
  file.release_pages();
  EXPECT_EQ(text_of(file), std::string("a\0b\xff", 4));
}

TEST(MappedFile, MovesItsMapping) {
  MappedFile first(write_file("first", "first"));
  MappedFile second(std::move(first));
  EXPECT_EQ(text_of(second), "first");
  second = MappedFile(write_file("second", "second"));
  EXPECT_EQ(text_of(second), "second");
}

TEST(MappedFile, TakesAnEmptyFile) {
  const MappedFile file(write_file("empty", ""));
  EXPECT_TRUE(file.bytes().empty());
  file.release_pages();
}

TEST(MappedFileDeathTest, NamesAFileThatIsShortenedWhileItIsRead) {
  const std::string path = write_file("shortened", std::string(100'000, 'x'));
  EXPECT_EXIT(
      {
        explain_lost_pages();
        const MappedFile file(path);
        std::filesystem::resize_file(path, 10);
        volatile std::byte touched = file.bytes()[90'000];
        (void)touched;
      },
      testing::ExitedWithCode(static_cast<int>(ExitCode::kBadFile)),
      "error: .*mapped_file_test.shortened was shortened while it was read, or its disk fails; put "
      "it back and run the same command again");
}

TEST(MappedFile, NamesTheFileItCannotRead) {
  const std::string missing = testing::TempDir() + "mapped_file_test.missing";
  try {
    MappedFile file(missing);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "cannot read " + missing + ": No such file or directory");
  }
  try {
    MappedFile file("/");
    FAIL();
  } catch (const FileError& error) {
    EXPECT_STREQ(error.what(), "/ is not a regular file");
  }
}

}  // namespace
}  // namespace switchyard
