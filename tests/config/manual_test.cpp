#include "config/manual.h"

#include <fstream>
#include <iterator>

#include <gtest/gtest.h>

#include "config/example.h"
#include "config/reader.h"

namespace switchyard {
namespace {

Config read_back(const std::string& yaml) {
  Reader reader;
  reader.read_document(yaml, "config.yaml");
  EXPECT_EQ(reader.mistakes(), std::vector<std::string>{}) << yaml;
  return reader.config();
}

void expect_equal(const Config& a, const Config& b) {
  for (const Setting& setting : settings()) {
    EXPECT_EQ(setting.print(a), setting.print(b)) << setting.name;
  }
}

TEST(ResolvedYaml, ReadsBackAsTheSameValues) {
  Config config = config_without_defaults();
  config.run.dir = "a \"b\": # 'c'\n\\ \xc3\xa9";
  config.data.train = {"null", "x, y]", "~", " spaced "};
  config.data.eval = {};
  config.optimizer.lr = 0.1 + 0.2;
  config.optimizer.epsilon = 1.0 / 3e8;
  Origins origins;
  for (const Setting& setting : settings()) {
    origins.set(setting.name, "run.yaml:1");
  }
  const Config again = read_back(resolved_yaml(config, origins));
  expect_equal(again, config);
  EXPECT_EQ(again.run.dir, config.run.dir);
  EXPECT_EQ(again.data.train, config.data.train);
  EXPECT_EQ(again.optimizer.lr, config.optimizer.lr);
  EXPECT_EQ(again.optimizer.epsilon, config.optimizer.epsilon);
}

TEST(ResolvedYaml, LeavesOutWhatNobodyGave) {
  const std::string yaml = resolved_yaml(Config{}, Origins{});
  EXPECT_NE(yaml.find("  # dir: not given"), std::string::npos);
  expect_equal(read_back(yaml), Config{});
}

TEST(ResolvedYaml, SaysWhereEachValueComesFromAndWhatItMeans) {
  Config config;
  config.moe.top_k = 4;
  Origins origins;
  origins.set("moe.top_k", "run.yaml:4");
  const std::string yaml = resolved_yaml(config, origins);
  const size_t start = yaml.find("  top_k: 4 ");
  ASSERT_NE(start, std::string::npos);
  const std::string line = yaml.substr(start, yaml.find('\n', start) - start);
  EXPECT_NE(line.find("# [run.yaml:4] experts each token is sent to"), std::string::npos) << line;
  EXPECT_NE(yaml.find("# [default] decides initial values"), std::string::npos);
}

TEST(ResolvedYaml, SurvivesAStrangeFileName) {
  Origins origins;
  origins.set("run.seed", "a\nmoe: 3\n:4");
  expect_equal(read_back(resolved_yaml(Config{}, origins)), Config{});
}

TEST(ManualText, DescribesASetting) {
  EXPECT_NE(manual_text().find("  moe.top_k (integer, 1 to 1024; default 2)\n"
                               "      experts each token is sent to\n"),
            std::string::npos);
  EXPECT_NE(manual_text().find("  run.dir (text; must be given to train)\n"), std::string::npos);
  EXPECT_NE(manual_text().find("  model.num_layers (integer, 1 to 10000; must be given)\n"),
            std::string::npos);
}

TEST(ManualText, SpeaksOfASectionOrOfOneSetting) {
  EXPECT_TRUE(manual_text("checkpoint").starts_with("checkpoint: "));
  EXPECT_EQ(manual_text("checkpoint").find("moe."), std::string::npos);
  EXPECT_EQ(manual_text("moe.top_k"),
            "  moe.top_k (integer, 1 to 1024; default 2)\n"
            "      experts each token is sent to\n");
  EXPECT_EQ(message_of<ConfigError>([] { manual_text("moe.topk"); }),
            "there is no section or setting moe.topk; did you mean moe.top_k?");
  EXPECT_EQ(message_of<ConfigError>([] { manual_text("zzzzzzzz"); }),
            "there is no section or setting zzzzzzzz; config keys lists all");
}

TEST(ManualMarkdown, IsTheCommittedPage) {
  std::ifstream file(SWITCHYARD_SOURCE_DIR "/docs/config.md");
  const std::string page{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  EXPECT_EQ(page, manual_markdown())
      << "docs/config.md is out of date: run `switchyard config keys --markdown > docs/config.md`";
}

}  // namespace
}  // namespace switchyard
