#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <vector>

#include "base/token_batch.h"

namespace switchyard {

// The micro-batches of one rank in one pass, in order. Each is read when it is asked for, so that a
// batch of any size takes the memory of one micro-batch. Copies share what they read.
class MicroBatches {
 public:
  using Read = std::function<TokenBatch(int64_t index)>;

  // `read` gives the same batch every time.
  MicroBatches(int64_t size, Read read);
  // Of batches at hand, so that these can be given in place of it.
  MicroBatches(std::vector<TokenBatch> batches);            // NOLINT(google-explicit-constructor)
  MicroBatches(std::initializer_list<TokenBatch> batches);  // as {batch}

  int64_t size() const { return size_; }
  // Valid until another one is asked for. Not for several threads.
  const TokenBatch& operator[](int64_t index) const;

 private:
  struct Latest {
    int64_t index = -1;
    TokenBatch batch;
  };

  int64_t size_;
  Read read_;
  std::shared_ptr<Latest> latest_ = std::make_shared<Latest>();
};

}  // namespace switchyard
