#pragma once

#include <cstdint>

namespace switchyard {

// At least `bytes` of memory of the calling thread, aligned to 64 bytes, with nothing in it. It is
// the same memory at every call: whoever asks again gives up what it got before.
void* thread_scratch(int64_t bytes);

}  // namespace switchyard
