#include "nn/key_value_cache.h"

#include <algorithm>
#include <vector>

#include <ATen/ATen.h>

namespace switchyard {

std::pair<at::Tensor, at::Tensor> KeyValueCache::append(const at::Tensor& new_keys,
                                                        const at::Tensor& new_values) {
  const int64_t needed = length + new_keys.size(0);
  if (!keys.defined() || keys.size(0) < needed) {
    constexpr int64_t kSmallestCapacity = 64;
    const int64_t capacity = std::max(kSmallestCapacity, 2 * needed);
    const auto grow = [&](const at::Tensor& old, const at::Tensor& like) {
      at::Tensor grown = at::empty({capacity, like.size(1), like.size(2)}, like.options());
      if (length > 0) {
        grown.narrow(0, 0, length).copy_(old.narrow(0, 0, length));
      }
      return grown;
    };
    keys = grow(keys, new_keys);
    values = grow(values, new_values);
  }
  keys.narrow(0, length, new_keys.size(0)).copy_(new_keys);
  values.narrow(0, length, new_values.size(0)).copy_(new_values);
  length = needed;
  return {keys.narrow(0, 0, length), values.narrow(0, 0, length)};
}

at::Tensor attend_after(const MixerCaches& caches, const at::Tensor& q, const at::Tensor& k,
                        const at::Tensor& v, const SequenceTable& table,
                        const AttentionOptions& options) {
  const at::Tensor kept_values = v.defined() ? v : k.narrow(2, 0, 0);
  std::vector<at::Tensor> parts;
  for (int64_t i = 0; i < table.num_sequences(); ++i) {
    const int64_t start = table.starts[static_cast<size_t>(i)];
    const int64_t length = table.length(i);
    auto& cache = dynamic_cast<KeyValueCache&>(*caches.at(static_cast<size_t>(i)));
    const int64_t first_position = cache.length;
    const auto [keys, values] =
        cache.append(k.narrow(0, start, length), kept_values.narrow(0, start, length));
    parts.push_back(attention_with_cache(q.narrow(0, start, length), keys,
                                         v.defined() ? values : keys, first_position, options));
  }
  return parts.size() == 1 ? parts[0] : at::cat(parts);
}

}  // namespace switchyard
