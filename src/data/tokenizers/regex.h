#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <string_view>

namespace switchyard {

// Whose pattern it is. Both differ from PCRE2 in what \s, \w, \h, \d, ^, $ and script names mean.
enum class RegexSyntax {
  kOniguruma,  // tokenizer.json, in which the package uses Oniguruma with its Ruby syntax
  kRust,       // tiktoken, which uses the regex and fancy-regex crates
};

// A compiled pattern over valid UTF-8. Matching is const and safe from several threads at once.
class Regex {
 public:
  // `where` names the file and component in errors. Throws FileError for a pattern that cannot be
  // compiled, or that uses what is not carried over exactly.
  Regex(const std::string& pattern, RegexSyntax syntax, const std::string& where);

  // The first match that begins at `from` or later. Throws FileError where matching needs more
  // memory than it may use.
  bool find(std::string_view text, size_t from, size_t& begin, size_t& end) const;

  // Calls part(begin, end, is_match) for all matches and what lies between them, in order, so that
  // the parts cover the text. A match may be empty, but not where the last one ended, and not in an
  // empty text.
  template <class Part>
  void for_each_part(std::string_view text, Part&& part) const {
    size_t covered = 0;
    size_t from = 0;
    bool has_match = false;
    size_t begin = 0;
    size_t end = 0;
    while (!text.empty() && from <= text.size() && find(text, from, begin, end)) {
      if (begin == end && has_match && covered == end) {
        from = next_start(text, from);
        continue;
      }
      if (covered != begin) {
        part(covered, begin, false);
      }
      part(begin, end, true);
      covered = from = end;
      has_match = true;
    }
    if (covered != text.size()) {
      part(covered, text.size(), false);
    }
  }

 private:
  static size_t next_start(std::string_view text, size_t from);

  struct Compiled;
  std::shared_ptr<const Compiled> compiled_;
};

// The pattern in PCRE2's syntax; public for its test. Throws FileError as the constructor does.
std::string translate_regex(const std::string& pattern, RegexSyntax syntax,
                            const std::string& where);

// `text` as a pattern that matches it literally.
std::string escape_regex(std::string_view text);

}  // namespace switchyard
