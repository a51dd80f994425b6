#include "checkpoint/checkpoint_saver.h"

#include <chrono>
#include <utility>

#include <ATen/ATen.h>

#include "base/error.h"
#include "base/files.h"
#include "base/log.h"
#include "checkpoint/agree.h"
#include "checkpoint/checkpoint_folder.h"
#include "checkpoint/rank_file.h"

namespace switchyard {
namespace {

constexpr Site kUnderWay{"checkpoint.under_way", Purpose::kCheckpoint};

std::vector<StreamedPart> copies_of(std::vector<StreamedPart> parts) {
  for (StreamedPart& part : parts) {
    part.values = [copy = part.values().clone()] { return copy; };
  }
  return parts;
}

}  // namespace

CheckpointSaver::CheckpointSaver(std::filesystem::path directory, const Group& world, int64_t keep,
                                 bool in_background)
    : directory_(std::move(directory)), world_(world), keep_(keep), in_background_(in_background) {}

CheckpointSaver::~CheckpointSaver() {
  if (checksum_.valid()) {
    checksum_.wait();  // before its folder is removed
  }
}

void CheckpointSaver::save(const CheckpointRecord& record, const std::vector<TensorPart>& parts) {
  finish();
  const std::filesystem::path path = directory_ / step_name(record.step);
  record_ = record;
  run_on_first_rank(world_, [&] {
    make_directories(directory_);
    delete_leftovers(directory_);
    partial_ = PartialCheckpoint(path);
    partial_.create();
  });
  const auto write = [folder = PartialCheckpoint::folder_of(path),
                      rank = world_.rank()](const std::vector<StreamedPart>& shares) {
    return write_rank_file(folder, rank, shares);
  };
  if (in_background_) {
    std::vector<StreamedPart> copies;
    run_and_agree(world_, [&] {
      copies = copies_of(shares_to_save(parts));
      return std::string();
    });
    checksum_ = std::async(std::launch::async, write, std::move(copies));
  } else {
    checksum_ = std::async(std::launch::deferred, [&] { return write(shares_to_save(parts)); });
    finish();
  }
}

void CheckpointSaver::poll() {
  if (!checksum_.valid()) {
    return;
  }
  const bool is_written = checksum_.wait_for(std::chrono::seconds(0)) == std::future_status::ready;
  const at::Tensor is_under_way = at::full({1}, is_written ? 0 : 1, at::kLong);
  world_.all_reduce(is_under_way, kUnderWay, ReduceOp::kMax);
  if (is_under_way.item<int64_t>() == 0) {
    finish();
  }
}

void CheckpointSaver::finish() {
  if (!checksum_.valid()) {
    return;
  }
  std::vector<std::string> checksums;
  try {
    checksums = run_and_agree(world_, [&] { return checksum_.get(); });
    run_on_first_rank(world_, [&] { partial_.finish(record_, checksums); });
  } catch (...) {
    partial_ = PartialCheckpoint();
    throw;
  }
  run_on_first_rank(world_, [&] {
    write_latest(directory_, record_.step);
    try {
      delete_old_checkpoints(directory_, record_.step, keep_);
    } catch (const FileError& error) {
      log_warn("an old checkpoint stays: {}", error.what());
    }
  });
  saved_step_ = record_.step;
}

}  // namespace switchyard
