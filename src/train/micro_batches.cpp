#include "train/micro_batches.h"

#include <utility>

namespace switchyard {

MicroBatches::MicroBatches(int64_t size, Read read) : size_(size), read_(std::move(read)) {}

MicroBatches::MicroBatches(std::vector<TokenBatch> batches)
    : size_(std::ssize(batches)), read_([batches = std::move(batches)](int64_t index) {
        return batches[static_cast<size_t>(index)];
      }) {}

MicroBatches::MicroBatches(std::initializer_list<TokenBatch> batches)
    : MicroBatches(std::vector<TokenBatch>(batches)) {}

const TokenBatch& MicroBatches::operator[](int64_t index) const {
  if (latest_->index != index) {
    latest_->batch = read_(index);
    latest_->index = index;
  }
  return latest_->batch;
}

}  // namespace switchyard
