#include "parallel/no_warnings.h"

#include <mutex>
#include <utility>

#include <c10/util/Logging.h>

namespace switchyard {
namespace {

constexpr int kErrorsOnly = 2;  // of c10's levels: information, warnings, errors

std::mutex mutex;
int num_alive = 0;
int previous_level = 0;

}  // namespace

NoWarnings::NoWarnings() {
  const std::lock_guard lock(mutex);
  if (num_alive++ == 0) {
    previous_level = std::exchange(FLAGS_caffe2_log_level, kErrorsOnly);
  }
}

NoWarnings::~NoWarnings() {
  const std::lock_guard lock(mutex);
  if (--num_alive == 0) {
    FLAGS_caffe2_log_level = previous_level;
  }
}

}  // namespace switchyard
