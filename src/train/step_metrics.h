#pragma once

#include "config/config.h"
#include "train/metrics.h"
#include "train/train_step.h"

namespace switchyard {

// What a step measured of its batch, as it is reported: losses, auxiliary terms, norm, loads of
// experts, dropped copies. The rest is left as it is.
StepMetrics measured_by(const StepOutcome& outcome, const Config& config);

}  // namespace switchyard
