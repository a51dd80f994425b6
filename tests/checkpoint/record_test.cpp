#include "checkpoint/record.h"

#include <gtest/gtest.h>

#include <ATen/Parallel.h>
#include <ATen/Version.h>

#include "base/error.h"
#include "checkpoint/checkpoint_tests.h"

namespace switchyard {
namespace {

CheckpointRecord full_record() {
  CheckpointRecord record;
  record.step = 20;
  record.samples_consumed = int64_t{1} << 60;
  record.tokens_seen = 12345;
  record.total_steps = 100;
  record.configuration = "run:\n  seed: 7\n";
  record.fingerprint = "0123abcd";
  record.seed = UINT64_MAX;
  record.layout = "world 4: tp 2 ep 2";
  record.num_threads = 3;
  record.instruction_set = "AVX2";
  record.torch_version = "2.15.0";
  record.extra = {{"loss", 0.1}, {"list", {1, 2}}};
  return record;
}

TEST(CheckpointRecord, ReadsBackFromItsJson) {
  const nlohmann::json json = nlohmann::json::parse(to_json(full_record()).dump());
  const CheckpointRecord read = record_from_json(json, "f");
  EXPECT_EQ(to_json(read), to_json(full_record()));
  EXPECT_EQ(read.seed, UINT64_MAX);
  EXPECT_EQ(read.extra["loss"].get<double>(), 0.1);
}

TEST(CheckpointRecord, NamesTheFieldThatIsMissingOrOfAnotherType) {
  const nlohmann::json full = to_json(full_record());
  for (const auto& [name, value] : full.items()) {
    if (name == "origin") {
      continue;  // any object, and older checkpoints have none
    }
    nlohmann::json json = full;
    json.erase(name);
    EXPECT_EQ(message_of<CheckpointError>([&] { record_from_json(json, "f"); }),
              "f: the field \"" + name + "\" is missing");
    if (name != "extra") {
      json[name] = nullptr;
      EXPECT_EQ(message_of<CheckpointError>([&] { record_from_json(json, "f"); }),
                "f: the field \"" + name + "\" is null, which is not its type");
    }
  }
}

TEST(CheckpointRecord, DescribesThisMachine) {
  CheckpointRecord record;
  record.describe_machine();
  EXPECT_EQ(record.num_threads, at::get_num_threads());
  EXPECT_EQ(record.instruction_set, at::get_cpu_capability());
  EXPECT_NE(at::show_config().find(record.instruction_set), std::string::npos);
  EXPECT_TRUE(record.torch_version.starts_with("2."));
}

TEST(WhyNotBitIdentical, ListsEveryDifference) {
  const CheckpointRecord saved = full_record();
  CheckpointRecord now = saved;
  now.step = 30;
  EXPECT_EQ(why_not_bit_identical(saved, now), "");
  now.layout = "world 1";
  now.num_threads = 2;
  now.instruction_set = "DEFAULT";
  now.torch_version = "2.11.0";
  EXPECT_EQ(
      why_not_bit_identical(saved, now),
      "this run will not be bit-identical to one that never stopped: layout was world 4: tp 2 "
      "ep 2, is world 1, threads per rank was 3, is 2, instruction set was AVX2, is DEFAULT, "
      "libtorch was 2.15.0, is 2.11.0");
}

}  // namespace
}  // namespace switchyard
