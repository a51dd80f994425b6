#include "data/tokenizers/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "data/tokenizers/unicode_tables.h"
#include "data/tokenizers/utf8.h"

namespace switchyard {
namespace {

// What a class of characters means to Oniguruma and to Rust, spelled for the inside of PCRE2's
// brackets. PCRE2's own \s has U+180E besides, and its \w lacks marks and connectors.
constexpr std::string_view kSpace = "\\t-\\r\\x{85}\\p{Z}";
constexpr std::string_view kNotSpace =
    "\\x{0}-\\x{8}\\x{e}-\\x{1f}\\x{21}-\\x{84}\\x{86}-\\x{9f}\\x{a1}-\\x{167f}\\x{1681}-\\x{1fff}"
    "\\x{200b}-\\x{2027}\\x{202a}-\\x{202e}\\x{2030}-\\x{205e}\\x{2060}-\\x{2fff}"
    "\\x{3001}-\\x{10ffff}";
constexpr std::string_view kWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}";
constexpr std::string_view kRustWord = "\\p{Alphabetic}\\p{M}\\p{Nd}\\p{Pc}\\x{200c}\\x{200d}";

// Names of properties that mean the same everywhere; any other name is that of a script.
constexpr std::string_view kCategories =
    " Any C Cc Cf Cn Co Cs L Ll Lm Lo Lt Lu M Mc Me Mn N Nd Nl No P Pc Pd Pe Pf Pi Po Ps S Sc Sk "
    "Sm "
    "So Z Zl Zp Zs Alphabetic Lowercase Uppercase White_Space ";

struct LongName {
  std::string_view name;
  std::string_view category;
};
constexpr LongName kLongNames[] = {
    {"Letter", "L"},
    {"Uppercase_Letter", "Lu"},
    {"Lowercase_Letter", "Ll"},
    {"Mark", "M"},
    {"Number", "N"},
    {"Decimal_Number", "Nd"},
    {"Punctuation", "P"},
    {"Symbol", "S"},
    {"Separator", "Z"},
    {"Other", "C"},
    {"Space_Separator", "Zs"},
};

// Reads a pattern from left to right and writes it in PCRE2's syntax.
class Translation {
 public:
  Translation(const std::string& pattern, RegexSyntax syntax, const std::string& where)
      : pattern_(pattern), is_rust_(syntax == RegexSyntax::kRust), where_(where) {}

  std::string run() {
    while (position_ < pattern_.size()) {
      const char c = pattern_[position_];
      if (c == '\\') {
        translate_escape(/*is_in_class=*/false);
      } else if (c == '[') {
        translate_class();
      } else if (c == '$') {
        // Oniguruma's ends a line, Rust's the text.
        out_ += is_rust_ ? "\\z" : "(?=\\n|\\z)";
        ++position_;
      } else if (c == '^') {
        out_ += is_rust_ ? "\\A" : "(?:\\A|(?<=\\n))";
        ++position_;
      } else if (pattern_.compare(position_, 2, "(?") == 0) {
        translate_group();
      } else if (c == '{') {
        translate_interval();
      } else {
        out_ += c;
        ++position_;
      }
    }
    return out_;
  }

 private:
  [[noreturn]] void refuse(const std::string& what) const {
    throw FileError(fmt::format("{}: the pattern \"{}\" uses {}, which is not implemented", where_,
                                pattern_, what));
  }

  // Options at the beginning of a group: Ruby's (?m) lets the point match a new line, as (?s) does.
  void translate_group() {
    const size_t end = pattern_.find_first_not_of("imsx-", position_ + 2);
    const bool is_option = end != std::string::npos && end > position_ + 2 &&
                           (pattern_[end] == ':' || pattern_[end] == ')');
    out_ += "(?";
    position_ += 2;
    for (; is_option && position_ < end; ++position_) {
      const char c = pattern_[position_];
      if (c == 's' || (c == 'm' && is_rust_)) {
        refuse(fmt::format("the option {}", c));
      }
      out_ += c == 'm' ? 's' : c;
    }
  }

  // In Ruby's syntax a plus behind an interval repeats it, and {,3} begins at none.
  void translate_interval() {
    const size_t end = pattern_.find('}', position_);
    const bool has_suffix = end != std::string::npos && end + 1 < pattern_.size() &&
                            (pattern_[end + 1] == '+' || pattern_[end + 1] == '?');
    if (!is_rust_ && (has_suffix || pattern_.compare(position_, 2, "{,") == 0)) {
      refuse("an interval with a suffix or without a lower limit");
    }
    out_ += pattern_[position_++];
  }

  void put_class(std::string_view inside, bool is_negated, bool is_in_class) {
    if (is_in_class) {
      out_ += inside;
    } else {
      out_ += fmt::format("[{}{}]", is_negated ? "^" : "", inside);
    }
  }

  void translate_escape(bool is_in_class) {
    if (position_ + 1 == pattern_.size()) {
      refuse("a backslash at its end");
    }
    const char c = pattern_[position_ + 1];
    position_ += 2;
    if (c == 's') {
      put_class(kSpace, false, is_in_class);
    } else if (c == 'S') {
      put_class(is_in_class ? kNotSpace : kSpace, true, is_in_class);
    } else if (c == 'd') {
      put_class("\\p{Nd}" + newer_of("Nd"), false, is_in_class);
    } else if (c == 'D') {
      put_class(is_in_class ? "\\P{Nd}" : "\\p{Nd}" + newer_of("Nd"), true, is_in_class);
    } else if (c == 'w') {
      put_class(word_class(), false, is_in_class);
    } else if (c == 'W') {
      if (is_in_class) {
        refuse("\\W inside brackets");
      }
      put_class(word_class(), true, false);
    } else if (c == 'h' && !is_rust_) {
      put_class("0-9a-fA-F", false, is_in_class);
    } else if (c == 'p' || c == 'P') {
      translate_property(c, is_in_class);
    } else if (c == 'u' && position_ + 4 <= pattern_.size()) {
      out_ += "\\x{" + pattern_.substr(position_, 4) + "}";
      position_ += 4;
    } else if (std::string_view("bBGhHRXKQENVyYkg").find(c) != std::string_view::npos) {
      refuse(fmt::format("\\{}", c));
    } else {
      out_ += '\\';
      out_ += c;
    }
  }

  void translate_property(char letter, bool is_in_class) {
    std::string name;
    if (position_ < pattern_.size() && pattern_[position_] == '{') {
      const size_t end = pattern_.find('}', position_);
      if (end == std::string::npos) {
        refuse("\\p{ without its end");
      }
      name = pattern_.substr(position_ + 1, end - position_ - 1);
      position_ = end + 1;
    } else if (position_ < pattern_.size()) {
      name = pattern_.substr(position_++, 1);
    }
    bool is_negated = letter == 'P';
    if (!name.empty() && name[0] == '^') {
      is_negated = !is_negated;
      name.erase(0, 1);
    }
    for (const auto& [long_name, category] : kLongNames) {
      if (name == long_name) {
        name = category;
      }
    }
    // PCRE2 would otherwise take a script's name for the characters that the script shares.
    const bool is_category = kCategories.find(" " + name + " ") != std::string_view::npos;
    const std::string inside = fmt::format("\\p{{{}{}}}", is_category ? "" : "sc:", name);
    if (!is_in_class) {
      put_class(inside + newer_of(name), is_negated, false);
    } else if (is_negated) {
      out_ += fmt::format("\\P{{{}{}}}", is_category ? "" : "sc:", name);
    } else {
      out_ += inside + newer_of(name);
    }
  }

  // Characters of a category that PCRE2's own tables may lack.
  static std::string newer_of(std::string_view category) {
    std::string out;
    for (const auto& [first, last, its_category] : newer_characters()) {
      if (!category.empty() && std::string_view(its_category).starts_with(category)) {
        out += fmt::format("\\x{{{:x}}}-\\x{{{:x}}}", static_cast<uint32_t>(first),
                           static_cast<uint32_t>(last));
      }
    }
    return out;
  }

  std::string word_class() const {
    return std::string(is_rust_ ? kRustWord : kWord) + newer_of("L") + newer_of("M") +
           newer_of("Nd") + newer_of("Pc");
  }

  void translate_class() {
    const size_t start = position_;
    out_ += pattern_[position_++];
    if (position_ < pattern_.size() && pattern_[position_] == '^') {
      out_ += pattern_[position_++];
    }
    bool is_first = true;
    while (true) {
      if (position_ == pattern_.size()) {
        position_ = start;
        refuse("brackets without their end");
      }
      const char c = pattern_[position_];
      if (c == ']' && !is_first) {
        out_ += c;
        ++position_;
        return;
      }
      is_first = false;
      if (c == '\\') {
        translate_escape(/*is_in_class=*/true);
      } else if (c == '[') {
        refuse("brackets inside brackets");
      } else if (pattern_.compare(position_, 2, "&&") == 0) {
        refuse("&& inside brackets");
      } else {
        out_ += c;
        ++position_;
      }
    }
  }

  const std::string& pattern_;
  const bool is_rust_;
  const std::string& where_;
  size_t position_ = 0;
  std::string out_;
};

// What matching needs in one thread: the places found, and a stack that may grow.
struct MatchState {
  pcre2_match_data* data = pcre2_match_data_create(1, nullptr);
  pcre2_match_context* context = pcre2_match_context_create(nullptr);
  pcre2_jit_stack* stack = pcre2_jit_stack_create(size_t{32} << 10, size_t{64} << 20, nullptr);

  MatchState() {
    pcre2_jit_stack_assign(context, nullptr, stack);
    pcre2_set_match_limit(context, UINT32_MAX);
    pcre2_set_depth_limit(context, UINT32_MAX);
  }
  ~MatchState() {
    pcre2_jit_stack_free(stack);
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
  }
  MatchState(const MatchState&) = delete;
  MatchState& operator=(const MatchState&) = delete;
};

std::string message_of(int error) {
  unsigned char text[256];
  pcre2_get_error_message(error, text, sizeof(text));
  return reinterpret_cast<const char*>(text);
}

}  // namespace

struct Regex::Compiled {
  pcre2_code* code = nullptr;
  std::string pattern;
  std::string where;
  bool has_jit = false;

  Compiled() = default;
  ~Compiled() { pcre2_code_free(code); }
  Compiled(const Compiled&) = delete;
  Compiled& operator=(const Compiled&) = delete;
};

Regex::Regex(const std::string& pattern, RegexSyntax syntax, const std::string& where) {
  const std::string translated = translate_regex(pattern, syntax, where);
  auto compiled = std::make_shared<Compiled>();
  compiled->pattern = pattern;
  compiled->where = where;
  int error = 0;
  size_t offset = 0;
  compiled->code =
      pcre2_compile(reinterpret_cast<const unsigned char*>(translated.data()), translated.size(),
                    PCRE2_UTF | PCRE2_UCP, &error, &offset, nullptr);
  check<FileError>(compiled->code != nullptr, "{}: the pattern \"{}\" is not understood: {}", where,
                   pattern, message_of(error));
  // Without a just-in-time compiler on this processor the same matches are found more slowly.
  compiled->has_jit = pcre2_jit_compile(compiled->code, PCRE2_JIT_COMPLETE) == 0;
  compiled_ = std::move(compiled);
}

bool Regex::find(std::string_view text, size_t from, size_t& begin, size_t& end) const {
  thread_local const MatchState state;
  const auto* subject = reinterpret_cast<const unsigned char*>(text.data());
  const Compiled& compiled = *compiled_;
  int result = compiled.has_jit ? pcre2_jit_match(compiled.code, subject, text.size(), from,
                                                  PCRE2_NO_UTF_CHECK, state.data, state.context)
                                : PCRE2_ERROR_JIT_STACKLIMIT;
  if (result == PCRE2_ERROR_JIT_STACKLIMIT) {
    result = pcre2_match(compiled.code, subject, text.size(), from,
                         PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, state.data, state.context);
  }
  if (result == PCRE2_ERROR_NOMATCH) {
    return false;
  }
  check<FileError>(result >= 0, "{}: matching the pattern \"{}\" failed: {}", compiled.where,
                   compiled.pattern, message_of(result));
  const size_t* found = pcre2_get_ovector_pointer(state.data);
  begin = found[0];
  end = found[1];
  return true;
}

size_t Regex::next_start(std::string_view text, size_t from) {
  return from + (from < text.size() ? character_length(text[from]) : 1);
}

std::string translate_regex(const std::string& pattern, RegexSyntax syntax,
                            const std::string& where) {
  return Translation(pattern, syntax, where).run();
}

std::string escape_regex(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (std::string_view("\\.+*?()|[]{}^$#&-~/").find(c) != std::string_view::npos) {
      out += '\\';
    }
    out += c;
  }
  return out;
}

}  // namespace switchyard
