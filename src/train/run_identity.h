#pragma once

#include <string>
#include <vector>

#include "config/config.h"

namespace switchyard {

// The settings that make a run this one and no other. Where it lies, how it is laid out over ranks
// and threads, how often it saves, evaluates and reports may change between a stop and a resume.
bool is_part_of_identity(const std::string& setting);

// A short fingerprint of these settings.
std::string run_fingerprint(const Config& config);

// One line per setting of the identity that differs: "optimizer.lr: 0.001 in the checkpoint, 0.002
// now".
std::vector<std::string> identity_changes(const Config& saved, const Config& now);

}  // namespace switchyard
