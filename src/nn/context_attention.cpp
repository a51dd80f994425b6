#include "nn/context_attention.h"

namespace switchyard {

std::unique_ptr<ContextAttention> make_context_attention(ContextExchange exchange,
                                                         const Group& group) {
  switch (exchange) {
    case ContextExchange::kRing:
      return make_ring_attention(group);
    case ContextExchange::kAllGather:
      return make_gathered_attention(group);
    case ContextExchange::kAllToAll:
      return make_head_exchange_attention(group);
  }
  return nullptr;
}

}  // namespace switchyard
