#include "base/token_batch.h"

namespace switchyard {

TokenBatch TokenBatch::share(int64_t parts, int64_t index) const {
  TokenBatch part;
  part.table = table.share(parts, index);
  part.tokens = part.table.held.select(tokens);
  part.labels = part.table.held.select(labels);
  part.weights = part.table.held.select(weights);
  part.first_token = first_token;
  return part;
}

}  // namespace switchyard
