#pragma once

#include <map>
#include <set>
#include <string>

#include "config/values.h"

namespace switchyard {

// Settings that something else than the configuration's files gives: the model that a run starts
// from. They come first, so that files and command line may change them, but for the binding ones.
struct GivenSettings {
  std::string origin;                      // in messages: "mixtral/config.json"
  std::map<std::string, RawValue> values;  // by name
  std::set<std::string> binding;           // names whose value must stay: they decide the model
};

}  // namespace switchyard
