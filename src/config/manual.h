#pragma once

#include <string>

#include "config/config.h"
#include "config/origins.h"

namespace switchyard {

// The whole configuration as YAML, a line per setting with its origin and meaning as a comment.
// Reads back as the same values, to the last bit. Settings that nobody gave and that have no
// default are left out, as a comment.
std::string resolved_yaml(const Config& config, const Origins& origins);

// Every setting with what is allowed, its default and its meaning: as text for a terminal, and as
// the page docs/config.md. `only`: the section or the setting to speak of, all when empty; throws
// ConfigError, naming what was probably meant, when there is none of that name.
std::string manual_text(const std::string& only = "");
std::string manual_markdown();

}  // namespace switchyard
