#include "moe/token_dispatcher.h"

#include "moe/all_gather_dispatcher.h"
#include "moe/all_to_all_dispatcher.h"
#include "moe/flex_dispatcher.h"

namespace switchyard {

std::unique_ptr<TokenDispatcher> make_dispatcher(const MoeConfig& config, const Groups& groups) {
  switch (config.dispatcher) {
    case DispatcherKind::kAllGather:
      return std::make_unique<AllGatherDispatcher>(config.num_experts, groups);
    case DispatcherKind::kAllToAll:
      return std::make_unique<AllToAllDispatcher>(config.num_experts, groups);
    case DispatcherKind::kFlex:
      return std::make_unique<FlexDispatcher>(config.num_experts, groups);
  }
  return nullptr;
}

}  // namespace switchyard
