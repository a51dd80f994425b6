#include "config/fields.h"

#include <gtest/gtest.h>

namespace switchyard {
namespace {

enum class Color { kRed, kBlue };
constexpr std::array kColorWords{Word{Color::kRed, "red"}, Word{Color::kBlue, "blue"}};

struct Complete {
  int64_t count = 0;
  double share = 0.0;
  bool is_on = false;
  std::string name;
  std::vector<std::string> names;
  Color color = Color::kRed;

  static constexpr auto fields() {
    return std::tuple{
        field("count", &Complete::count, {0, 1}, "help"),
        field("share", &Complete::share, {0.0, 1.0}, "help"),
        field("is_on", &Complete::is_on, "help"),
        field("name", &Complete::name, "help"),
        field("names", &Complete::names, "help"),
        field("color", &Complete::color, kColorWords, "help"),
    };
  }
};

struct Incomplete {
  int64_t count = 0;
  std::vector<std::string> forgotten;

  static constexpr auto fields() {
    return std::tuple{field("count", &Incomplete::count, {0, 1}, "help")};
  }
};

struct TwiceTheMember {
  int64_t first = 0;
  int64_t second = 0;

  static constexpr auto fields() {
    return std::tuple{field("first", &TwiceTheMember::first, {0, 1}, "help"),
                      field("second", &TwiceTheMember::first, {0, 1}, "help")};
  }
};

struct TwiceTheKey {
  int64_t first = 0;
  double second = 0.0;

  static constexpr auto fields() {
    return std::tuple{field("first", &TwiceTheKey::first, {0, 1}, "help"),
                      field("first", &TwiceTheKey::second, {0.0, 1.0}, "help")};
  }
};

TEST(MemberCount, CountsMembersOfEveryKind) {
  EXPECT_EQ(member_count<Complete>(), 6U);
  EXPECT_EQ(member_count<Incomplete>(), 2U);
}

TEST(Fields, MustHaveAnEntryForEveryMember) {
  EXPECT_TRUE(has_entry_for_every_member<Complete>());
  EXPECT_FALSE(has_entry_for_every_member<Incomplete>());
}

TEST(Fields, MustDifferInKeyAndMember) {
  EXPECT_TRUE(entries_differ(Complete::fields()));
  EXPECT_FALSE(entries_differ(TwiceTheMember::fields()));
  EXPECT_FALSE(entries_differ(TwiceTheKey::fields()));
}

}  // namespace
}  // namespace switchyard
