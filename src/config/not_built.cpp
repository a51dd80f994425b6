#include "config/not_built.h"

#include <algorithm>
#include <array>
#include <string_view>

#include <fmt/format.h>

#include "config/settings.h"

namespace switchyard {
namespace {

struct NotBuilt {
  std::string_view name;         // of a setting, or of a section: `mamba.`
  std::string_view values = "";  // which are refused, between blanks; empty: all but the default
};

// A row goes when what it names is built.
constexpr std::array kNotBuilt{
    NotBuilt{"mtp.repeated_layer"},
    NotBuilt{"mtp.layer_pattern"},
};

bool is_refused(const NotBuilt& row, const Setting& setting, const Config& config) {
  const bool is_named =
      row.name.ends_with('.') ? setting.name.starts_with(row.name) : setting.name == row.name;
  if (!is_named) {
    return false;
  }
  return row.values.empty()
             ? !setting.has_default_value(config)
             : row.values.find(" " + setting.print(config) + " ") != std::string_view::npos;
}

}  // namespace

std::vector<std::string> settings_not_built(const Config& config) {
  std::vector<std::string> lines;
  for (const Setting& setting : settings()) {
    const bool refused = std::any_of(kNotBuilt.begin(), kNotBuilt.end(), [&](const NotBuilt& row) {
      return is_refused(row, setting, config);
    });
    if (refused) {
      lines.push_back(fmt::format("{} ({}) is not built yet: leave it {}", setting.name,
                                  setting.print(config), setting.print(Config{})));
    }
  }
  return lines;
}

}  // namespace switchyard
