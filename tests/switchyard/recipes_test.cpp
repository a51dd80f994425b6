// Runs the built program: every recipe, made small.

#include <filesystem>

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "switchyard/run_program.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
using testing::HasSubstr;

const fs::path kRecipes = fs::path(SWITCHYARD_SOURCE_DIR) / "recipes";

TEST(TrainShrunk, TakesTwoStepsOfEveryRecipe) {
  int64_t num_recipes = 0;
  for (const auto& entry : fs::directory_iterator(kRecipes)) {
    if (entry.is_regular_file()) {
      SCOPED_TRACE(entry.path().filename());
      const ProgramResult result = run_program("train " + entry.path().string() + " --shrink");
      EXPECT_EQ(result.exit_code, 0) << result.output;
      EXPECT_THAT(result.output, HasSubstr("step 2/2"));
      ++num_recipes;
    }
  }
  EXPECT_GT(num_recipes, 10);
}

TEST(TrainShrunk, LeavesNothingBehind) {
  const fs::path before = fs::current_path();
  const fs::path folder = fs::path(testing::TempDir()) / "switchyard_shrunk_test";
  fs::create_directories(folder / "tmp");
  fs::current_path(folder);
  const fs::path recipe = kRecipes / "olmoe_1b_7b.yaml";
  const ProgramResult result =
      run_program_with("TMPDIR=tmp", "train " + recipe.string() + " --shrink");
  fs::current_path(before);
  EXPECT_EQ(result.exit_code, 0) << result.output;
  EXPECT_TRUE(fs::is_empty(folder / "tmp"));
  fs::remove(folder / "tmp");
  EXPECT_TRUE(fs::is_empty(folder));
  fs::remove_all(folder);
}

}  // namespace
}  // namespace switchyard
