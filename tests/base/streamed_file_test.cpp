#include "base/streamed_file.h"

#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>

#include "base/error.h"

namespace switchyard {
namespace {

std::string path_of(const std::string& name) {
  std::string path = testing::TempDir() + "streamed_file_test." + name;
  std::filesystem::remove(path);
  std::filesystem::remove(path + ".partial");
  return path;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

TEST(StreamedFile, AppearsWholeWhenPublished) {
  const std::string path = path_of("whole");
  const std::string text(5'000'000, 'x');
  StreamedFile file(path);
  file.write("start ");
  file.write(text);
  file.finish();
  EXPECT_FALSE(std::filesystem::exists(path));
  file.publish();
  EXPECT_EQ(file.size(), 5'000'006);
  EXPECT_EQ(read(path), "start " + text);
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
}

TEST(StreamedFile, LeavesTheOldFileWhenItIsNotPublished) {
  const std::string path = path_of("old");
  std::ofstream(path) << "old";
  {
    StreamedFile file(path);
    file.write("new");
    file.finish();
  }
  EXPECT_EQ(read(path), "old");
  EXPECT_FALSE(std::filesystem::exists(path + ".partial"));
  StreamedFile file(path);
  file.write("new");
  file.finish();
  file.publish();
  EXPECT_EQ(read(path), "new");
}

// Every write to /dev/full ends as on a full disk.
TEST(StreamedFile, SaysWhichFileDidNotFitOnTheDisk) {
  const std::string path = path_of("full");
  std::filesystem::create_symlink("/dev/full", path + ".partial");
  StreamedFile file(path);
  file.write("a few bytes stay in the buffer");
  try {
    file.finish();
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), "cannot write " + path +
                                ": No space left on device; free space there or write elsewhere");
  }
  EXPECT_THROW(file.write(std::string(3'000'000, 'x')), FileError);
}

TEST(StreamedFile, SaysWhatToDoAboutAMissingFolder) {
  const std::string path = testing::TempDir() + "streamed_file_test.no_such_folder/file";
  try {
    StreamedFile file(path);
    FAIL();
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(),
              "cannot write " + path + ": No such file or directory; create the folder first");
  }
}

}  // namespace
}  // namespace switchyard
