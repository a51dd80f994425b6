#include "checkpoint/record.h"

#include <vector>

#include <fmt/ranges.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>
#include <torch/version.h>

#include "checkpoint/error.h"
#include "checkpoint/sealed_json.h"

namespace switchyard {

void CheckpointRecord::describe_machine() {
  num_threads = at::get_num_threads();
  instruction_set = at::get_cpu_capability();
  torch_version = TORCH_VERSION;
}

nlohmann::json to_json(const CheckpointRecord& record) {
  return {{"step", record.step},
          {"samples_consumed", record.samples_consumed},
          {"tokens_seen", record.tokens_seen},
          {"total_steps", record.total_steps},
          {"configuration", record.configuration},
          {"fingerprint", record.fingerprint},
          {"seed", record.seed},
          {"layout", record.layout},
          {"num_threads", record.num_threads},
          {"instruction_set", record.instruction_set},
          {"torch_version", record.torch_version},
          {"extra", record.extra},
          {"origin", record.origin}};
}

CheckpointRecord record_from_json(const nlohmann::json& json, const std::string& source) {
  CheckpointRecord record;
  const auto read = [&](const char* name, auto& field) {
    field = json_field<std::decay_t<decltype(field)>>(json, name, source);
  };
  read("step", record.step);
  read("samples_consumed", record.samples_consumed);
  read("tokens_seen", record.tokens_seen);
  read("total_steps", record.total_steps);
  read("configuration", record.configuration);
  read("fingerprint", record.fingerprint);
  read("seed", record.seed);
  read("layout", record.layout);
  read("num_threads", record.num_threads);
  read("instruction_set", record.instruction_set);
  read("torch_version", record.torch_version);
  read("extra", record.extra);
  if (json.contains("origin")) {  // checkpoints of the first days have none
    read("origin", record.origin);
  }
  return record;
}

std::string why_not_bit_identical(const CheckpointRecord& saved, const CheckpointRecord& now) {
  std::vector<std::string> reasons;
  const auto compare = [&](std::string_view what, const auto& before, const auto& after) {
    if (before != after) {
      reasons.push_back(fmt::format("{} was {}, is {}", what, before, after));
    }
  };
  compare("layout", saved.layout, now.layout);
  compare("threads per rank", saved.num_threads, now.num_threads);
  compare("instruction set", saved.instruction_set, now.instruction_set);
  compare("libtorch", saved.torch_version, now.torch_version);
  return reasons.empty() ? ""
                         : fmt::format(
                               "this run will not be bit-identical to one that never "
                               "stopped: {}",
                               fmt::join(reasons, ", "));
}

}  // namespace switchyard
