#include <torch/csrc/distributed/c10d/PrefixStore.hpp>
#include <torch/csrc/distributed/c10d/ProcessGroupGloo.hpp>

#include "parallel/backend.h"

namespace switchyard {

std::shared_ptr<Group::Backend> make_gloo_backend(const c10::intrusive_ptr<c10d::Store>& store,
                                                  const std::string& key, int64_t rank,
                                                  int64_t size, const std::string& host,
                                                  std::chrono::milliseconds timeout) {
  auto options = c10d::ProcessGroupGloo::Options::create(timeout);
  options->devices.push_back(host.empty()
                                 ? c10d::ProcessGroupGloo::createDefaultDevice()
                                 : c10d::ProcessGroupGloo::createDeviceForHostname(host));
  auto scoped = c10::make_intrusive<c10d::PrefixStore>(key, store);
  auto group = c10::make_intrusive<c10d::ProcessGroupGloo>(
      scoped, static_cast<int>(rank), static_cast<int>(size), options);
  return std::make_shared<Group::Backend>(Group::Backend{group, timeout});
}

}  // namespace switchyard
