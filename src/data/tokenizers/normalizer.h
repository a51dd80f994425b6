#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "data/tokenizers/characters.h"
#include "data/tokenizers/regex.h"

namespace switchyard {

struct NormalizedText {
  std::string text;
  bool at_start = true;  // whether the document begins with it, and no step removed the beginning
};

// Changes text before it is cut into pieces. The kinds below are those of tokenizer.json's
// `normalizer`, and equal to the tokenizers package. Const and thread-safe.
class Normalizer {
 public:
  virtual ~Normalizer() = default;
  virtual void apply(NormalizedText& text) const = 0;
};

class NormalizerSequence : public Normalizer {
 public:
  explicit NormalizerSequence(std::vector<std::unique_ptr<Normalizer>> steps);
  void apply(NormalizedText& text) const override;

 private:
  std::vector<std::unique_ptr<Normalizer>> steps_;
};

class NormalFormNormalizer : public Normalizer {
 public:
  explicit NormalFormNormalizer(NormalForm form,
                                NormalTables tables = NormalTables::kTokenizersPackage)
      : form_(form), tables_(tables) {}
  void apply(NormalizedText& text) const override;

 private:
  NormalForm form_;
  NormalTables tables_;
};

class LowercaseNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override;
};

// Removes marks; accents are marks of their own after NFD or NFKD only.
class StripAccentsNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override;
};

// Removes white space at the ends.
class StripNormalizer : public Normalizer {
 public:
  StripNormalizer(bool left, bool right) : left_(left), right_(right) {}
  void apply(NormalizedText& text) const override;

 private:
  bool left_;
  bool right_;
};

class PrependNormalizer : public Normalizer {
 public:
  explicit PrependNormalizer(std::string prefix);
  void apply(NormalizedText& text) const override;

 private:
  std::string prefix_;
};

// Replaces a text wherever it stands.
class ReplaceTextNormalizer : public Normalizer {
 public:
  ReplaceTextNormalizer(std::string pattern, std::string content);
  void apply(NormalizedText& text) const override;

 private:
  std::string pattern_;
  std::string content_;
};

// Replaces each match of a pattern.
class ReplaceRegexNormalizer : public Normalizer {
 public:
  ReplaceRegexNormalizer(Regex regex, std::string content);
  void apply(NormalizedText& text) const override;

 private:
  Regex regex_;
  std::string content_;
};

// Each byte becomes a character of the byte alphabet.
class ByteLevelNormalizer : public Normalizer {
 public:
  void apply(NormalizedText& text) const override;
};

}  // namespace switchyard
