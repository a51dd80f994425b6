// Runs the built program: what a user types and what comes back.

#include <filesystem>

#include <gtest/gtest.h>

#include "base/exit_code.h"
#include "data/dataset_files.h"
#include "switchyard/run_program.h"

namespace switchyard {
namespace {

TEST(TokenizeCommand, MakesADataSetThatInspectShows) {
  const std::string folder = fresh_folder();
  write_file(folder + "a.txt", "To be");
  write_file(folder + "b.txt", "or not");
  const std::string prefix = folder + "data/set";
  const ProgramResult made =
      run_program("tokenize " + folder + "a.txt " + folder + "b.txt --out " + prefix);
  EXPECT_EQ(made.exit_code, 0);
  EXPECT_EQ(made.output, prefix + ": 2 documents, 13 tokens\n");
  // By its prefix, or by any of its files.
  for (const char* suffix : {"", ".bin", ".idx", ".json"}) {
    const ProgramResult shown = run_program("inspect " + prefix + suffix + " --verify");
    EXPECT_EQ(shown.exit_code, 0);
    EXPECT_NE(shown.output.find("tokens            13\n"), std::string::npos) << shown.output;
    EXPECT_NE(shown.output.find("|T|o| |b|e|<end of document>|"), std::string::npos)
        << shown.output;
  }
}

TEST(TokenizeCommand, RefusesWhatItCannotDoWithTheCodeOfTheReason) {
  const std::string folder = fresh_folder();
  write_file(folder + "empty.txt", "");
  const ProgramResult empty =
      run_program("tokenize " + folder + "empty.txt --out " + folder + "set");
  EXPECT_EQ(empty.exit_code, static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(
      empty.output,
      "error: " + folder + "empty.txt is empty, and a document needs text; leave the file out\n");
  const ProgramResult unknown =
      run_program("tokenize a.txt --tokenizer words --out " + folder + "set");
  EXPECT_EQ(unknown.exit_code, static_cast<int>(ExitCode::kRefusedConfig));
  EXPECT_EQ(unknown.output,
            "error: unknown tokenizer \"words\": it is neither \"bytes\" nor the path of a file or "
            "folder "
            "that is there\n");
  EXPECT_EQ(count_files(folder), 1);
}

TEST(TokenizeCommand, ReplacesADataSetOnlyByForce) {
  const std::string folder = fresh_folder();
  write_file(folder + "a.txt", "text");
  const std::string words = "tokenize " + folder + "a.txt --out " + folder + "set";
  EXPECT_EQ(run_program(words).exit_code, 0);
  EXPECT_EQ(run_program(words).exit_code, static_cast<int>(ExitCode::kBadFile));
  EXPECT_EQ(run_program(words + " --force").exit_code, 0);
}

}  // namespace
}  // namespace switchyard
