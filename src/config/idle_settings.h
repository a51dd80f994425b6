#pragma once

#include <set>
#include <string>
#include <string_view>
#include <vector>

#include "config/config.h"

namespace switchyard {

// Settings that mean nothing beside what the others say: rope.factor where rope.type is default, or
// the width of dense layers where no layer is dense.
struct IdleSettings {
  bool are_idle;
  std::vector<std::string_view> names;  // `moe` stands for the whole section
  std::string reason;

  bool contain(std::string_view name) const;
};

std::vector<IdleSettings> idle_settings(const Config& config);
std::set<std::string> names_of_idle_settings(const Config& config);

}  // namespace switchyard
