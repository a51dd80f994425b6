#include "data/prompt_file.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/dataset_files.h"

namespace switchyard {
namespace {

TEST(ReadPrompts, TakesLinesAndJsonLines) {
  const std::string folder = fresh_folder();
  EXPECT_EQ(read_prompts(write_file(folder + "a.txt", "one\n\n  two\r\nthree"), "text"),
            (std::vector<std::string>{"one", "  two", "three"}));
  EXPECT_EQ(
      read_prompts(
          write_file(folder + "a.jsonl", "{\"q\":\"a\\nb\"}\n{\"q\":\"c\",\"text\":\"d\"}\n"), "q"),
      (std::vector<std::string>{"a\nb", "c"}));
}

TEST(ReadPrompts, NamesFileAndLine) {
  const std::string folder = fresh_folder();
  const std::string lines = write_file(folder + "a.jsonl", "{\"text\":\"a\"}\n{}\n");
  EXPECT_EQ(error_of<FileError>([&] { read_prompts(lines, "text"); }),
            lines + ":2: the line has no key \"text\"; mend it or name another --key");
  const std::string empty = write_file(folder + "empty.txt", "\n");
  EXPECT_EQ(error_of<FileError>([&] { read_prompts(empty, "text"); }),
            empty + " holds no text to continue");
}

}  // namespace
}  // namespace switchyard
