#pragma once

#include <array>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <tuple>
#include <type_traits>
#include <vector>

namespace switchyard {

// Every setting is declared once, as a member of its section's struct and one entry of the
// section's fields() table. Parsing, range checks, the manual and the resolved configuration are
// derived from the entry. A member without an entry does not compile.

constexpr int64_t kNoLimit = std::numeric_limits<int64_t>::max();

struct IntegerRange {  // both ends allowed
  int64_t low;
  int64_t high;
};
struct RealRange {  // both ends allowed
  double low;
  double high;
};
struct NoLimits {};

// One allowed word of an enumeration.
template <class Enum>
struct Word {
  Enum value;
  std::string_view text;
};
template <class Enum>
Word(Enum, const char*) -> Word<Enum>;  // clang 14 deduces none for an aggregate

enum class Need {
  kOptional,        // has a default
  kRequired,        // must be given in every configuration
  kRequiredToTrain  // must be given to train; describing a model or a layout does without
};

template <class Section, class Value, class Limits>
struct Field {
  std::string_view key;
  Value Section::*member;
  Limits limits;
  std::string_view help;  // one sentence without a full stop, with the unit
  Need need;
};

template <class Section>
constexpr auto field(std::string_view key, int64_t Section::*member, IntegerRange range,
                     std::string_view help, Need need = Need::kOptional) {
  return Field<Section, int64_t, IntegerRange>{key, member, range, help, need};
}
template <class Section>
constexpr auto field(std::string_view key, double Section::*member, RealRange range,
                     std::string_view help, Need need = Need::kOptional) {
  return Field<Section, double, RealRange>{key, member, range, help, need};
}
template <class Section, class Enum, size_t kCount>
constexpr auto field(std::string_view key, Enum Section::*member,
                     const std::array<Word<Enum>, kCount>& words, std::string_view help,
                     Need need = Need::kOptional) {
  return Field<Section, Enum, std::array<Word<Enum>, kCount>>{key, member, words, help, need};
}
template <class Section>
constexpr auto field(std::string_view key, bool Section::*member, std::string_view help,
                     Need need = Need::kOptional) {
  return Field<Section, bool, NoLimits>{key, member, {}, help, need};
}
template <class Section>
constexpr auto field(std::string_view key, std::string Section::*member, std::string_view help,
                     Need need = Need::kOptional) {
  return Field<Section, std::string, NoLimits>{key, member, {}, help, need};
}
template <class Section>
constexpr auto field(std::string_view key, std::vector<std::string> Section::*member,
                     std::string_view help, Need need = Need::kOptional) {
  return Field<Section, std::vector<std::string>, NoLimits>{key, member, {}, help, need};
}

// --- Checks of a table, at compile time ---

struct AnyValue {
  template <class T>
  operator T() const;  // NOLINT(google-explicit-constructor): has to convert silently
};

// The number of members of an aggregate: the most initialisers that it accepts.
template <class T, class... Args>
constexpr size_t member_count() {
  if constexpr (requires { T{Args{}..., AnyValue{}}; }) {
    return member_count<T, Args..., AnyValue>();
  } else {
    return sizeof...(Args);
  }
}

template <class A, class B>
constexpr bool same_entry(const A& a, const B& b) {
  if constexpr (std::is_same_v<decltype(a.member), decltype(b.member)>) {
    return a.key == b.key || a.member == b.member;
  } else {
    return a.key == b.key;
  }
}

// True when no two entries share a key or a member.
template <class Table>
constexpr bool entries_differ(const Table& table) {
  return std::apply(
      [](const auto&... entry) {
        const auto count_equal = [&](const auto& one) {
          return (size_t{same_entry(one, entry)} + ...);
        };
        return ((count_equal(entry) == 1) && ...);
      },
      table);
}

template <class Section>
constexpr bool has_entry_for_every_member() {
  return std::tuple_size_v<decltype(Section::fields())> == member_count<Section>();
}

// Called for every section by settings.cpp.
template <class Section>
constexpr void check_table() {
  static_assert(has_entry_for_every_member<Section>(),
                "a member of this section is missing from fields()");
  static_assert(entries_differ(Section::fields()),
                "two entries of fields() share a key or a member");
}

}  // namespace switchyard
