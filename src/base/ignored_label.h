#pragma once

#include <cstdint>

namespace switchyard {

// The label of a token that takes no part in the loss, as PyTorch has it.
constexpr int64_t kIgnoredLabel = -100;

}  // namespace switchyard
