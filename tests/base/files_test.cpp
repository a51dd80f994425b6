#include "base/files.h"

#include <cerrno>

#include <gtest/gtest.h>
#include <sys/stat.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

TEST(InputFile, ReadsAtAnyOffsetAndSaysWhenBytesAreMissing) {
  const TemporaryFolder folder;
  write_bytes(folder / "file", "0123456789");
  InputFile opened(folder / "file");
  const InputFile file = std::move(opened);
  EXPECT_EQ(file.size(), 10);
  std::string text(3, ' ');
  file.read(4, text.data(), 3);
  EXPECT_EQ(text, "456");
  EXPECT_EQ(
      message_of<FileError>([&] { file.read(8, text.data(), 3); }),
      (folder / "file").string() + " ends at byte 10, 1 more were expected: the file is cut short");
}

TEST(InputFile, RefusesWhatIsNoFileWithoutWaiting) {
  const TemporaryFolder folder;
  ASSERT_EQ(mkfifo((folder / "pipe").c_str(), 0600), 0);
  EXPECT_EQ(message_of<FileError>([&] { InputFile file(folder / "pipe"); }),
            (folder / "pipe").string() + " is not a regular file");
}

TEST(Files, SayWhatFailedAndWhatToDo) {
  EXPECT_EQ(describe_file_error("a/b", "write", ENOSPC),
            "cannot write a/b: No space left on device; free space there or write elsewhere");
  EXPECT_EQ(describe_file_error("a/b", "write", EROFS),
            "cannot write a/b: Read-only file system; make it readable and writable or use another "
            "folder");
  EXPECT_EQ(describe_file_error("a/b", "read", EIO),
            "cannot read a/b: Input/output error; check the disk");
  const TemporaryFolder folder;
  write_bytes(folder / "file", "");
  EXPECT_EQ(message_of<FileError>([&] { make_directories(folder / "file/folder"); }),
            "cannot make the folder " + (folder / "file/folder").string() +
                ": Not a directory; check the path");
}

TEST(WriteText, ReplacesAFileAndLeavesNothingElse) {
  const TemporaryFolder folder;
  write_text(folder / "file", "first");
  write_text(folder / "file", "second");
  EXPECT_EQ(read_text(folder / "file"), "second");
  EXPECT_FALSE(std::filesystem::exists(folder / "file.partial"));
}

TEST(ReplaceDirectory, PutsTheNewFolderInPlaceOfTheOld) {
  const TemporaryFolder folder;
  for (const char* text : {"first", "second"}) {
    make_directories(folder / "new");
    write_bytes(folder / "new/file", text);
    replace_directory(folder / "new", folder / "place");
    EXPECT_EQ(file_bytes(folder / "place/file"), text);
  }
  const std::filesystem::directory_iterator entries(folder.path());
  EXPECT_EQ(std::distance(begin(entries), end(entries)), 1);
}

TEST(RemoveDirectory, LeavesNothing) {
  const TemporaryFolder folder;
  make_directories(folder / "doomed/inside");
  make_directories(folder / "doomed.deleted");  // of a deletion that was interrupted
  remove_directory(folder / "doomed");
  EXPECT_TRUE(std::filesystem::is_empty(folder.path()));
  EXPECT_EQ(message_of<FileError>([&] { remove_directory(folder / "doomed"); }),
            "cannot delete " + (folder / "doomed").string() +
                ": No such file or directory; check the path");
}

}  // namespace
}  // namespace switchyard
