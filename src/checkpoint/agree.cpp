#include "checkpoint/agree.h"

#include <algorithm>

#include "checkpoint/error.h"

namespace switchyard {
namespace {

constexpr Site kOutcome{"checkpoint.outcome", Purpose::kCheckpoint};

// The first character of what a rank tells the others.
constexpr char kDone = '+';
constexpr char kDamaged = 'd';
constexpr char kRefused = 'r';

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kDone + work();
  } catch (const CommError&) {
    throw;
  } catch (const DamagedCheckpoint& error) {
    return kDamaged + std::string(error.what());
  } catch (const std::exception& error) {
    return kRefused + std::string(error.what());
  }
}

}  // namespace

std::vector<std::string> run_and_agree(const Group& world,
                                       const std::function<std::string()>& work) {
  std::vector<std::string> outcomes = world.all_gather_text(outcome_of(work), kOutcome);
  const bool all_equal =
      std::all_of(outcomes.begin(), outcomes.end(),
                  [&](const std::string& other) { return other == outcomes.front(); });
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    const char kind = outcomes[rank].front();
    outcomes[rank].erase(0, 1);
    const std::string message =
        all_equal ? outcomes[rank] : fmt::format("rank {}: {}", rank, outcomes[rank]);
    if (kind == kDamaged) {
      throw DamagedCheckpoint(message);
    }
    if (kind == kRefused) {
      throw CheckpointError(message);
    }
  }
  return outcomes;
}

void run_on_first_rank(const Group& world, const std::function<void()>& work) {
  run_and_agree(world, [&] {
    if (world.rank() == 0) {
      work();
    }
    return std::string();
  });
}

}  // namespace switchyard
