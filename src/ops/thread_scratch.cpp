#include "ops/thread_scratch.h"

#include <cstdlib>
#include <memory>
#include <new>

namespace switchyard {
namespace {

struct Free {
  void operator()(void* memory) const { std::free(memory); }
};

}  // namespace

void* thread_scratch(int64_t bytes) {
  thread_local std::unique_ptr<void, Free> memory;
  thread_local int64_t size = 0;
  if (bytes > size) {
    const int64_t rounded = (bytes + 63) / 64 * 64;
    memory.reset();
    size = 0;
    memory.reset(std::aligned_alloc(64, static_cast<size_t>(rounded)));
    if (memory == nullptr) {
      throw std::bad_alloc();
    }
    size = rounded;
  }
  return memory.get();
}

}  // namespace switchyard
