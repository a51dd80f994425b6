#include "parallel/launch.h"

#include <algorithm>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "checkpoint/checkpoint.h"
#include "commands.h"
#include "config/replan.h"
#include "config/rules.h"
#include "supervise/signal_inbox.h"
#include "supervise/supervised_run.h"
#include "train/model_source.h"
#include "train_words.h"

namespace switchyard {
namespace {

constexpr const char* kThisProgram = "/proc/self/exe";

struct Options {
  int64_t num_ranks = 1;
  int64_t num_nodes = 1;
  int64_t node = 0;
  std::string address = "127.0.0.1";
  int64_t port = 0;
  int64_t restarts = 0;
  int64_t same_failures = 3;
  int64_t fewest_ranks = 0;  // 0: as many as there were
  std::string log_folder;
  std::vector<std::string> words;
};

Config read_settings(const Options& options) {
  check<ConfigError>(options.words.front() == "train",
                     "switchyard launch: only train runs on several ranks, got {}: write "
                     "switchyard launch -n {} -- train CONFIG ...",
                     options.words.front(), options.num_ranks);
  try {
    const TrainWords train = read_train_words({options.words.begin() + 1, options.words.end()});
    check<ConfigError>(!train.is_shrunk,
                       "switchyard launch ... -- train --shrink: --shrink is for one rank: leave "
                       "switchyard launch out");
    return load_config_from_model(train.path, train.overrides, ConfigUse::kTrain).config;
  } catch (const CLI::Error& error) {
    throw ConfigError(fmt::format("switchyard launch ... -- train: {}; see switchyard train --help",
                                  error.what()));
  }
}

void check_options(const Options& options) {
  check<ConfigError>(options.node < options.num_nodes,
                     "--node-rank ({}) must be below --nodes ({}): machines count from 0",
                     options.node, options.num_nodes);
  check<ConfigError>(options.num_nodes == 1 || options.port != 0,
                     "--port must be given for --nodes {}: the machines must know where to meet",
                     options.num_nodes);
  check<ConfigError>(options.fewest_ranks <= options.num_ranks,
                     "--min-ranks ({}) must not exceed -n ({})", options.fewest_ranks,
                     options.num_ranks);
  check<ConfigError>(options.fewest_ranks == 0 || options.restarts > 0,
                     "--min-ranks needs --restarts: it says how to start again");
  check<ConfigError>(options.num_nodes == 1 || options.fewest_ranks == 0,
                     "--min-ranks needs --nodes 1: a machine alone cannot give the others another "
                     "layout");
}

// The words with each of these settings given once, as it shall be.
std::vector<std::string> with_settings(
    std::vector<std::string> words, const std::vector<std::pair<std::string, int64_t>>& settings) {
  for (const auto& [name, value] : settings) {
    std::erase_if(words,
                  [&, &name = name](const auto& word) { return word.starts_with(name + "="); });
    words.push_back(fmt::format("{}={}", name, value));
  }
  return words;
}

std::optional<RankCommand> command_for_fewer(const Options& options, const Config& config,
                                             int64_t num_ranks) {
  if (options.fewest_ranks == 0) {
    return std::nullopt;
  }
  const auto plan = replan(config, options.fewest_ranks, num_ranks - 1);
  if (!plan) {
    return std::nullopt;
  }
  return RankCommand{.num_ranks = plan->num_ranks,
                     .words = with_settings(options.words, plan->changes)};
}

std::string newest_checkpoint(const Config& config) {
  const auto path = find_latest(std::filesystem::path(config.run.dir) / "checkpoints");
  return path ? path->filename().string() : "";
}

ExitCode launch(Options options) {
  SignalInbox inbox;  // before any thread
  check_options(options);
  const Config config = read_settings(options);
  check_rules_of_world(config, options.num_ranks * options.num_nodes);
  std::optional<MeetingPoint> meeting_point;
  if (options.node == 0) {
    meeting_point.emplace(static_cast<uint16_t>(options.port));
    options.port = meeting_point->port();
  }
  options.words.insert(options.words.begin(), "switchyard");
  return run_supervised(
      {.program = kThisProgram,
       .command = {.num_ranks = options.num_ranks, .words = options.words},
       .num_nodes = options.num_nodes,
       .node = options.node,
       .address = options.address,
       .port = static_cast<uint16_t>(options.port),
       .most_restarts = options.restarts,
       .most_alike = options.same_failures,
       .log_folder = options.log_folder,
       .newest_checkpoint = [&] { return newest_checkpoint(config); },
       .fewer_ranks =
           [&](int64_t num_ranks) { return command_for_fewer(options, config, num_ranks); }},
      inbox);
}

void add_options(CLI::App& command, Options& options) {
  command.add_option("-n", options.num_ranks, "ranks to start on this machine")
      ->required()
      ->check(CLI::Range(int64_t{1}, kMaxRanks));
  command
      .add_option("--restarts", options.restarts,
                  "how often all ranks are started again after one was lost")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--same-failures", options.same_failures,
                  "stop after that many failures alike in a row without a new checkpoint")
      ->check(CLI::Range(int64_t{1}, int64_t{1} << 40))
      ->capture_default_str();
  command
      .add_option("--min-ranks", options.fewest_ranks,
                  "instead of stopping so, go on with fewer ranks, but no fewer than these")
      ->check(CLI::Range(int64_t{1}, kMaxRanks));
  command.add_option("--log-dir", options.log_folder,
                     "write what rank N prints to N's own file, DIR/rank_N.log, and show rank 0");
  command.add_option("--nodes", options.num_nodes, "machines; run this command on each")
      ->check(CLI::Range(int64_t{1}, kMaxRanks))
      ->capture_default_str();
  command.add_option("--node-rank", options.node, "number of this machine, from 0")
      ->check(CLI::Range(int64_t{0}, int64_t{1} << 40))
      ->capture_default_str();
  command.add_option("--address", options.address, "where machine 0 is reached")
      ->capture_default_str();
  command
      .add_option("--port", options.port,
                  "where the ranks meet on machine 0; on one machine a free one is taken")
      ->check(CLI::Range(1, 65535));
  command.add_option("COMMAND", options.words, "train CONFIG ...")->required();
}

}  // namespace

void add_launch_command(CLI::App& program, Command& chosen) {
  auto options = std::make_shared<Options>();
  CLI::App* command = add_command(
      program, "launch", "run train on several ranks of this machine, and again when one is lost",
      "switchyard launch -n 4 --restarts 3 -- train run.yaml parallel.tensor_size=2");
  add_options(*command, *options);
  command->callback([options, &chosen] { chosen = [options] { return launch(*options); }; });
}

}  // namespace switchyard
