#include "config/reader.h"

#include <gtest/gtest.h>

#include "config/example.h"

namespace switchyard {
namespace {

using Lines = std::vector<std::string>;

class ReaderTest : public FolderTest {
 protected:
  // The mistakes in a file of this text.
  static Lines mistakes_in(const std::string& text) {
    Reader reader;
    reader.read_document(text, "run.yaml");
    return reader.mistakes();
  }
  static Lines mistakes_of_overrides(const Lines& overrides) {
    Reader reader;
    for (const std::string& text : overrides) {
      reader.read_override(text);
    }
    return reader.mistakes();
  }
};

TEST_F(ReaderTest, StoresValuesOfEveryKindWithTheirLines) {
  Reader reader;
  reader.read_document(
      "moe:\n  top_k: 4  # comment\n  pre_softmax: true\n  score_function: sigmoid\n"
      "data:\n  train: [a, 'b c']\n  eval: only\noptimizer: {lr: 3e-4}\nmetrics:\n",
      "run.yaml");
  EXPECT_EQ(reader.mistakes(), Lines{});
  EXPECT_EQ(reader.config().moe.top_k, 4);
  EXPECT_TRUE(reader.config().moe.pre_softmax);
  EXPECT_EQ(reader.config().moe.score_function, ScoreFunction::kSigmoid);
  EXPECT_EQ(reader.config().data.train, (Lines{"a", "b c"}));
  EXPECT_EQ(reader.config().data.eval, Lines{"only"});
  EXPECT_EQ(reader.config().optimizer.lr, 3e-4);
  EXPECT_EQ(reader.origins().of("moe.top_k"), "run.yaml:2");
  EXPECT_EQ(reader.origins().of("optimizer.lr"), "run.yaml:8");
  EXPECT_EQ(reader.origins().of("moe.num_experts"), "default");
}

TEST_F(ReaderTest, ReportsEveryMistakeOfAFileWithItsLine) {
  const std::string wrong_word =
      " is \"sigmiod\", allowed are softmax, sigmoid, sqrtsoftplus; did you mean sigmoid?";
  const std::string no_advice = "; `switchyard config keys` lists all settings";
  EXPECT_EQ(mistakes_in("moe:\n"
                        "  num_expert: 8\n"
                        "  num_experts_per_tok: 2\n"
                        "  top_k: eight\n"
                        "  first_dense_layers: -1\n"
                        "  score_function: sigmiod\n"
                        "model:\n"
                        "  top_k: 1\n"
                        "  tie_embeddings: yes\n"
                        "  banana: 1\n"),
            (Lines{
                "run.yaml:2: unknown key moe.num_expert; did you mean moe.num_experts?",
                "run.yaml:3: unknown key moe.num_experts_per_tok; did you mean moe.top_k?",
                "run.yaml:4: moe.top_k must be a whole number, got \"eight\"",
                "run.yaml:5: moe.first_dense_layers is -1, allowed are 0 to 10000",
                "run.yaml:6: moe.score_function" + wrong_word,
                "run.yaml:8: unknown key model.top_k; did you mean moe.top_k?",
                "run.yaml:9: model.tie_embeddings must be true or false, got \"yes\"",
                "run.yaml:10: unknown key model.banana" + no_advice,
            }));
}

TEST_F(ReaderTest, ReportsUnknownSections) {
  EXPECT_EQ(mistakes_in("modle:\n  num_layers: 2\nlr: 1\ntrain_iters: 5\nmoe.top_k: 2\nfruit: 1\n"),
            (Lines{
                "run.yaml:1: unknown section modle; did you mean model?",
                "run.yaml:3: unknown section lr; did you mean optimizer.lr?",
                "run.yaml:4: unknown section train_iters; did you mean train.steps?",
                "run.yaml:5: unknown section moe.top_k; write top_k inside the section moe",
                "run.yaml:6: unknown section fruit; `switchyard config keys` lists all settings",
            }));
}

TEST_F(ReaderTest, ReportsWhatIsGivenTwice) {
  EXPECT_EQ(mistakes_in("moe:\n  top_k: 1\n  top_k: 2\nrun:\n  seed: 1\nmoe:\n  num_experts: 8\n"),
            (Lines{"run.yaml:3: moe.top_k is given twice, first in line 2",
                   "run.yaml:6: moe is given twice, first in line 1"}));
}

TEST_F(ReaderTest, ReportsValuesOfTheWrongShape) {
  const std::string nested = " must be a single value or a list of them, got a nested one";
  EXPECT_EQ(mistakes_in("moe:\n  top_k:\n  num_experts: {a: 1}\n  dispatcher: [[1]]\n"
                        "  ? [a, b]\n  : 1\nrun: 3\nmodel: [1]\ndata:\n  train: []\n"),
            (Lines{"run.yaml:2: moe.top_k has no value", "run.yaml:3: moe.num_experts" + nested,
                   "run.yaml:4: moe.dispatcher" + nested, "run.yaml:5: a key must be a single word",
                   "run.yaml:7: run must be a section of keys and values, got a single value",
                   "run.yaml:8: model must be a section of keys and values, got a list",
                   "run.yaml:10: data.train must not be empty"}));
}

TEST_F(ReaderTest, ReportsWhatIsNoConfiguration) {
  EXPECT_EQ(mistakes_in("run:\n  seed: 1\na: [\n"),
            Lines{"run.yaml:4: not valid YAML: end of sequence flow not found"});
  EXPECT_EQ(mistakes_in(""), Lines{"run.yaml: is empty, expected sections such as model: and "
                                   "train:"});
  EXPECT_EQ(mistakes_in("# only a comment\n"),
            Lines{"run.yaml: is empty, expected sections such as model: and train:"});
  EXPECT_EQ(mistakes_in("\n- a\n- b\n"),
            Lines{"run.yaml:2: must hold sections such as model: and train:, got a list"});
  EXPECT_EQ(mistakes_in("hello"),
            Lines{"run.yaml:1: must hold sections such as model: and train:, got a single value"});
  EXPECT_EQ(mistakes_in("run:\n  seed: 1\n---\nrun:\n  seed: 2\n"),
            Lines{"run.yaml: holds 2 YAML documents, expected one"});
  EXPECT_EQ(mistakes_in(std::string(100000, '[')),
            Lines{"run.yaml:1: not a configuration: lists or sections are nested too deeply"});
}

TEST_F(ReaderTest, KeepsEachMistakeOnOneLine) {
  EXPECT_EQ(mistakes_in("run:\n  \"a\\nb\": 1\n"),
            Lines{"run.yaml:2: unknown key run.a?b; `switchyard config keys` lists all settings"});
}

TEST_F(ReaderTest, LetsAFileWinOverTheOneItExtends) {
  write("base/a.yaml", "run:\n  seed: 1\n  dir: a\ndata:\n  train: [x, y]\nmoe:\n  top_k: 1\n");
  write("base/b.yaml", "extends: a.yaml\nrun:\n  dir: b\ndata:\n  train: [z]\n");
  write("run.yaml", "run:\n  dir: c\nextends: base/b.yaml\n");
  Reader reader;
  reader.read_file("run.yaml");
  EXPECT_EQ(reader.mistakes(), Lines{});
  EXPECT_EQ(reader.config().run.dir, "c");
  EXPECT_EQ(reader.config().data.train, Lines{"z"});
  EXPECT_EQ(reader.config().moe.top_k, 1);
  EXPECT_EQ(reader.origins().of("run.dir"), "run.yaml:2");
  EXPECT_EQ(reader.origins().of("data.train"), "base/b.yaml:5");
  EXPECT_EQ(reader.origins().of("moe.top_k"), "base/a.yaml:7");
}

TEST_F(ReaderTest, ReportsTheMistakesOfAllFilesTogether) {
  write("base.yaml", "run:\n  sed: 1\n");
  write("run.yaml", "extends: base.yaml\nrun:\n  seed: x\n");
  Reader reader;
  reader.read_file("run.yaml");
  EXPECT_EQ(reader.mistakes(), (Lines{"base.yaml:2: unknown key run.sed; did you mean run.seed?",
                                      "run.yaml:3: run.seed must be a whole number, got \"x\""}));
}

TEST_F(ReaderTest, RefusesToExtendInACircle) {
  write("a.yaml", "extends: sub/b.yaml\n");
  write("sub/b.yaml", "extends: ../a.yaml\n");
  Reader reader;
  reader.read_file("a.yaml");
  EXPECT_EQ(reader.mistakes(),
            Lines{"sub/b.yaml:1: extends makes a circle: a.yaml -> sub/b.yaml -> a.yaml"});
}

TEST_F(ReaderTest, NeedsTheExtendedFile) {
  EXPECT_EQ(mistakes_in("run:\n  seed: 1\nextends: base.yaml\n"),
            Lines{"run.yaml:3: extends base.yaml: cannot be read: No such file or directory"});
  EXPECT_EQ(mistakes_in("extends: [a, b]\n"),
            Lines{"run.yaml:1: extends must be the path of a YAML file"});
}

TEST_F(ReaderTest, NeedsTheFile) {
  Reader reader;
  EXPECT_EQ(message_of<FileError>([&] { reader.read_file("no.yaml"); }),
            "no.yaml: cannot be read: No such file or directory");
  EXPECT_EQ(message_of<FileError>([&] { reader.read_file("."); }),
            ".: is a folder, expected a YAML file");
}

TEST_F(ReaderTest, LetsOverridesWin) {
  Reader reader;
  reader.read_document("moe:\n  top_k: 4\nrun:\n  dir: a\n", "run.yaml");
  reader.read_override("moe.top_k=8");
  reader.read_override("run.dir=b=c: [d");
  reader.read_override("data.train=[x, 'y z']");
  reader.read_override("data.eval=[x");
  EXPECT_EQ(reader.mistakes(), Lines{});
  EXPECT_EQ(reader.config().moe.top_k, 8);
  EXPECT_EQ(reader.config().run.dir, "b=c: [d");
  EXPECT_EQ(reader.config().data.train, (Lines{"x", "y z"}));
  EXPECT_EQ(reader.config().data.eval, Lines{"[x"});
  EXPECT_EQ(reader.origins().of("moe.top_k"), "command line");
}

TEST_F(ReaderTest, ChecksOverridesLikeFiles) {
  EXPECT_EQ(mistakes_of_overrides({"moe.topk=4", "learning_rate=1", "moe.top_k=0",
                                   "moe.num_experts", "run.seed=1", "run.seed=2", "fruit", "=3",
                                   "a.b.c=1", "data.train=[]", "run.dir="}),
            (Lines{
                "command line: unknown key moe.topk; did you mean moe.top_k?",
                "command line: unknown key learning_rate; did you mean optimizer.lr?",
                "command line: moe.top_k is 0, allowed are 1 to 1024",
                "command line: moe.num_experts has no value; write moe.num_experts=VALUE",
                "command line: run.seed is given twice",
                "command line: fruit is not of the form section.key=value",
                "command line: =3 is not of the form section.key=value",
                "command line: unknown key a.b.c; `switchyard config keys` lists all settings",
                "command line: data.train must not be empty",
                "command line: run.dir must not be empty",
            }));
}

TEST_F(ReaderTest, RequiresSettingsUnlessAMistakeMeantThem) {
  Reader reader;
  reader.read_document("model:\n  num_layer: 2\n  hidden_size: big\n", "run.yaml");
  reader.require_settings(ConfigUse::kDescribe);
  EXPECT_EQ(reader.mistakes(),
            (Lines{"run.yaml:2: unknown key model.num_layer; did you mean model.num_layers?",
                   "run.yaml:3: model.hidden_size must be a whole number, got \"big\"",
                   "model.num_attention_heads must be given: query heads of an attention layer; 0 "
                   "when no layer has attention"}));
}

TEST_F(ReaderTest, RequiresNothingOfAFileThatItCannotRead) {
  for (const char* text :
       {"a: [", "modle:\n  num_layers: 2\n", "extends: no.yaml\n", "model: 1\n"}) {
    Reader reader;
    reader.read_document(text, "run.yaml");
    reader.require_settings(ConfigUse::kTrain);
    EXPECT_EQ(reader.mistakes().size(), 1U) << text;
  }
}

}  // namespace
}  // namespace switchyard
