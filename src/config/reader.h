#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "config/config.h"
#include "config/given_settings.h"
#include "config/origins.h"
#include "config/rules.h"
#include "config/settings.h"

namespace YAML {
class Node;
}

namespace switchyard {

// Reads files and overrides into one configuration and collects every mistake on the way. Later
// readings win. Throws only FileError, when the file given to read_file() cannot be read.
class Reader {
 public:
  void read_file(const std::string& path);
  void read_document(const std::string& text, const std::string& label);
  void read_override(const std::string& text);
  // Values that come from elsewhere; what is read after them wins.
  void read_given(const GivenSettings& given);

  // Notes a mistake for every setting that must be given and was not, leaving out those that a
  // noted mistake may have been meant for.
  void require_settings(ConfigUse use);

  const Config& config() const { return config_; }
  const Origins& origins() const { return origins_; }
  const std::vector<std::string>& mistakes() const { return mistakes_; }

 private:
  void read_base(const YAML::Node& node, const std::string& label, const std::string& where);
  void read_sections(const YAML::Node& document, const std::string& label);
  void read_section(const std::string& section, const YAML::Node& node, const std::string& label,
                    const std::string& where);
  void read_setting(const Setting& setting, const YAML::Node& node, const std::string& where);
  void unknown_section(const std::string& key, const std::string& where);
  void unknown_key(const std::string& name, const std::string& meant, const std::string& where);
  void store(const Setting& setting, const RawValue& raw, const std::string& origin);

  // The text of a key. Notes a mistake when it is no word, or when the mapping has it already.
  std::optional<std::string> read_key(const YAML::Node& node, const std::string& prefix,
                                      const std::string& label, std::map<std::string, int>& lines);

  template <class... Args>
  void mistake(fmt::format_string<Args...> pattern, Args&&... args) {
    mistakes_.push_back(on_one_line(fmt::format(pattern, std::forward<Args>(args)...)));
  }

  Config config_;
  Origins origins_;
  std::vector<std::string> mistakes_;
  std::vector<std::string> chain_;   // files being read, each extended by the one before
  std::set<std::string> suggested_;  // settings that a misspelt key probably meant
  std::set<std::string> overridden_;
  bool unreadable_ = false;  // part of the settings is unknown
};

}  // namespace switchyard
