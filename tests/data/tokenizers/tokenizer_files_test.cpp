#include "data/tokenizers/tokenizer_files.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "data/tokenizers/scratch_folder.h"

namespace switchyard {
namespace {

namespace fs = std::filesystem;
const fs::path kGolden = fs::path(SWITCHYARD_SOURCE_DIR) / "tests/golden/tokenizers";

TEST(TokenizerFiles, PreferTokenizerJsonInAFolder) {
  const fs::path folder = scratch_folder();
  fs::copy(kGolden / "sentencepiece_bpe/tokenizer.model", folder);
  EXPECT_EQ(read_tokenizer(folder)->vocab_size(),
            read_tokenizer(kGolden / "sentencepiece_bpe")->vocab_size());
  fs::copy(kGolden / "gpt2", folder);
  const auto tokenizer = read_tokenizer(folder);
  EXPECT_EQ(tokenizer->fingerprint(), read_tokenizer(kGolden / "gpt2")->fingerprint());
  EXPECT_EQ(tokenizer->name(), folder);
}

TEST(TokenizerFiles, TellRanksFromASentencePieceModelByTheirContent) {
  const fs::path folder = scratch_folder();
  fs::copy(kGolden / "tiktoken/small.tiktoken", folder / "tokenizer.model");
  fs::copy(kGolden / "tiktoken/small.tiktoken.json", folder / "tokenizer.model.json");
  EXPECT_EQ(read_tokenizer(folder / "tokenizer.model")->fingerprint(),
            read_tokenizer(kGolden / "tiktoken")->fingerprint());
}

// What files_of_tokenizer() gives is the same tokenizer in a folder of its own.
TEST(TokenizerFiles, CarryATokenizerElsewhere) {
  const fs::path folder = scratch_folder();
  fs::copy(kGolden / "gpt2/tokenizer.json", folder / "mine.json");
  fs::copy(kGolden / "gpt2/tokenizer_config.json", folder / "tokenizer_config.json");
  fs::copy(kGolden / "sentencepiece_bpe/tokenizer.model", folder / "tokenizer.model");
  int number = 0;
  for (const fs::path& path :
       {kGolden / "gpt2", folder / "mine.json", kGolden / "sentencepiece_bpe", kGolden / "tiktoken",
        kGolden / "tiktoken/small.tiktoken"}) {
    const fs::path copy = folder / std::to_string(number++);
    fs::create_directory(copy);
    for (const TokenizerFile& file : files_of_tokenizer(path)) {
      EXPECT_TRUE(belongs_to_tokenizer(file.name)) << file.name;
      fs::copy(file.path, copy / file.name);
    }
    EXPECT_EQ(read_tokenizer(copy)->fingerprint(), read_tokenizer(path)->fingerprint()) << path;
  }
}

TEST(TokenizerFiles, RefuseWhatIsNoTokenizer) {
  const fs::path folder = scratch_folder();
  EXPECT_EQ(message_of<FileError>([&] { read_tokenizer(folder); }),
            folder.string() +
                " holds no tokenizer: none of tokenizer.json, tekken.json, *.model, "
                "*.tiktoken is there");
  const std::string text = folder / "notes.txt";
  write_text(text, "notes");
  EXPECT_EQ(message_of<FileError>([&] { read_tokenizer(text); }),
            text +
                " is not a tokenizer of a known kind: tokenizer.json, tekken.json, a "
                "SentencePiece model, a .tiktoken file, or a folder that holds one of them");
  write_text(text, "");
  EXPECT_EQ(message_of<FileError>([&] { read_tokenizer(text); }), text + " is empty");
}

}  // namespace
}  // namespace switchyard
