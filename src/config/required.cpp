#include "config/required.h"

#include <fmt/format.h>

namespace switchyard {

std::vector<const Setting*> missing_settings(const Origins& origins, ConfigUse use) {
  std::vector<const Setting*> missing;
  for (const Setting& setting : settings()) {
    const bool is_needed = setting.need == Need::kRequired ||
                           (setting.need == Need::kRequiredToTrain && use == ConfigUse::kTrain);
    if (is_needed && !origins.is_set(setting.name)) {
      missing.push_back(&setting);
    }
  }
  return missing;
}

std::string missing_text(const Setting& setting) {
  return fmt::format("{} must be given: {}", setting.name, setting.help);
}

}  // namespace switchyard
