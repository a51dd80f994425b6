#pragma once

#include <string>
#include <vector>

#include "config/config.h"
#include "config/given_settings.h"
#include "config/origins.h"
#include "config/rules.h"

namespace switchyard {

struct LoadedConfig {
  Config config;
  Origins origins;
  std::vector<std::string> warnings;  // see warnings_about()
};

// Reads a YAML file, before it the file that it extends (`extends: other.yaml`, relative to the
// folder of the file that says so), after it `overrides` (`section.key=value`). What is read later
// wins; a list is replaced as a whole.
//
// Throws FileError when `path` cannot be read. Throws ConfigError with one line per mistake:
// unknown, misspelt, repeated, mistyped or missing settings and values out of range, each with file
// and line; when there are none of these, a line for every broken rule between settings, and for
// every binding setting of `given` that was changed.
LoadedConfig load_config(const std::string& path, const std::vector<std::string>& overrides,
                         ConfigUse use, const GivenSettings& given = {});

// The same from text, such as the configuration inside a checkpoint. `label` names the text in
// messages; `extends` is relative to its folder.
LoadedConfig load_config_text(const std::string& text, const std::string& label, ConfigUse use);

// --- The two halves of load_config(), for showing a configuration that is not complete

// Reads without asking for required settings and without the rules.
LoadedConfig read_config(const std::string& path, const std::vector<std::string>& overrides,
                         const GivenSettings& given = {});

// Throws ConfigError with a line for every missing setting or, when none is missing, for every
// broken rule; these lines end with the origin of the settings they name.
void check_config(const LoadedConfig& loaded, ConfigUse use);

}  // namespace switchyard
