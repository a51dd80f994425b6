#pragma once

#include <cstdint>
#include <string>

namespace switchyard {

// 1234567 as "1,234,567".
std::string with_commas(int64_t number);

}  // namespace switchyard
