#include "train/append_file.h"

#include <csignal>
#include <filesystem>
#include <fstream>
#include <sstream>

#include <gtest/gtest.h>
#include <sys/resource.h>

#include "base/error.h"

namespace switchyard {
namespace {

std::string new_path(const std::string& name) {
  const std::string path = testing::TempDir() + "append_file_test." + name;
  std::filesystem::remove(path);
  return path;
}

std::string read(const std::string& path) {
  std::ostringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

template <class Action>
void expect_error(const std::string& message, Action action) {
  try {
    action();
    FAIL() << "expected: " << message;
  } catch (const FileError& error) {
    EXPECT_EQ(error.what(), message);
  }
}

TEST(AppendFile, GrowsOverSeveralOpenings) {
  const std::string path = new_path("grows");
  {
    AppendFile file(path, AppendFile::Mode::kOpenOrCreate);
    EXPECT_EQ(file.size(), 0);
    file.append("one");
    EXPECT_EQ(read(path), "one");  // written through
  }
  AppendFile file(path, AppendFile::Mode::kOpenOrCreate);
  EXPECT_EQ(file.size(), 3);
  file.append("two");
  file.sync();
  EXPECT_EQ(file.size(), 6);
  EXPECT_EQ(file.read(2, 4), "et");
  file.truncate(4);
  file.append("!");
  EXPECT_EQ(read(path), "onet!");
}

TEST(AppendFile, MakesANewFileOnlyWhereThereIsNone) {
  const std::string path = new_path("new");
  const AppendFile file(path, AppendFile::Mode::kCreateNew);
  expect_error("cannot open " + path +
                   ": File exists; check that its folder exists, is writable and has free space",
               [&] { AppendFile(path, AppendFile::Mode::kCreateNew); });
}

TEST(AppendFile, NamesTheFileWhoseFolderIsMissing) {
  const std::string path = new_path("none/file");
  expect_error("cannot open " + path +
                   ": No such file or directory; check that its folder exists, is writable and has "
                   "free space",
               [&] { AppendFile(path, AppendFile::Mode::kOpenOrCreate); });
}

TEST(AppendFile, NamesTheFileThatIsShorterThanWhatIsRead) {
  const std::string path = new_path("short");
  AppendFile file(path, AppendFile::Mode::kOpenOrCreate);
  file.append("four");
  std::filesystem::resize_file(path, 2);
  expect_error("cannot read " + path +
                   ": Input/output error; check that its folder exists, is writable and has free "
                   "space",
               [&] { file.read(0, 4); });
}

// A limit on the size of files stands for a full disk: the write stops in the middle of the record.
TEST(AppendFile, LeavesNothingOfARecordThatDidNotFit) {
  const std::string path = new_path("full");
  AppendFile file(path, AppendFile::Mode::kOpenOrCreate);
  file.append("kept");
  const auto ignored = std::signal(SIGXFSZ, SIG_IGN);
  rlimit before{};
  getrlimit(RLIMIT_FSIZE, &before);
  const rlimit ten_bytes{10, before.rlim_max};
  setrlimit(RLIMIT_FSIZE, &ten_bytes);
  std::string message;
  try {
    file.append("more than fits");
  } catch (const FileError& error) {
    message = error.what();
  }
  setrlimit(RLIMIT_FSIZE, &before);
  std::signal(SIGXFSZ, ignored);
  EXPECT_EQ(message,
            "cannot write to " + path +
                ": File too large; check that its folder exists, is writable and has free space");
  EXPECT_EQ(read(path), "kept");
  file.append(" on");
  EXPECT_EQ(read(path), "kept on");
}

}  // namespace
}  // namespace switchyard
