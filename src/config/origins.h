#pragma once

#include <map>
#include <string>
#include <string_view>

namespace switchyard {

// Where each value came from: `run.yaml:4`, `command line` or `default`.
class Origins {
 public:
  void set(const std::string& name, const std::string& origin) { origins_[name] = origin; }

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
