#pragma once

#include <map>
#include <string>
#include <string_view>

namespace switchyard {

// Where each value came from: `run.yaml:4`, `command line` or `default`.
class Origins {
 public:
  void set(const std::string& name, const std::string& origin) { origins_[name] = origin; }

  // Those of the values that do not come from `origin`.
  Origins without(std::string_view origin) const {
    Origins others;
    for (const auto& [name, one] : origins_) {
      if (one != origin) {
        others.set(name, one);
      }
    }
    return others;
  }

  bool is_set(std::string_view name) const { return origins_.find(name) != origins_.end(); }
  std::string of(std::string_view name) const {
    const auto found = origins_.find(name);
    return found == origins_.end() ? "default" : found->second;
  }

 private:
  std::map<std::string, std::string, std::less<>>
      origins_;  // section.key -> origin, defaults left out
};

}  // namespace switchyard
