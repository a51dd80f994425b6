#include "train/metrics.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>
#include <nlohmann/json.hpp>

namespace switchyard {
namespace {

using Json = nlohmann::ordered_json;

Json number(double value) {
  if (std::isnan(value)) {
    return "NaN";
  }
  if (std::isinf(value)) {
    return value > 0 ? "Infinity" : "-Infinity";
  }
  return value;
}

Json number(const std::optional<double>& value) {
  return value ? number(*value) : Json(nullptr);
}

Ratio tokens_per_second(const StepMetrics& metrics) {
  return {static_cast<double>(metrics.tokens), metrics.step_time_s};
}

Ratio teraflops_per_second(const StepMetrics& metrics) {
  return {metrics.flops_per_rank * 1e-12, metrics.step_time_s};
}

void put_loss(Json& line, const std::string& name, const Ratio& loss) {
  line[name] = number(loss.value());
  line[name + "_sum"] = number(loss.numerator);
  line[name + "_weight"] = number(loss.denominator);
}

Json load_json(const ExpertLoad& load) {
  return {{"layer", load.layer},
          {"max_over_mean", number(load.max_over_mean().value())},
          {"idle_share", number(load.idle_share().value())},
          {"busiest", load.busiest},
          {"idle", load.idle},
          {"experts", load.num_experts},
          {"copies", load.copies}};
}

void put_times(Json& line, const StepMetrics& metrics) {
  line["step_time_s"] = number(metrics.step_time_s);
  line["tokens_per_s"] = number(tokens_per_second(metrics).value());
  line["tflops_per_rank"] = number(teraflops_per_second(metrics).value());
  line["flops_per_rank"] = number(metrics.flops_per_rank);
  const auto put_transfers = [&](const std::string& name, const std::optional<TransferTime>& time) {
    if (time) {
      line[name + "_share"] = number(Ratio{time->waited_s, metrics.step_time_s}.value());
      line[name + "_time_s"] = number(time->waited_s);
      line[name + "_hidden_s"] = number(time->hidden_s);
    }
  };
  put_transfers("dispatch", metrics.dispatch);
  put_transfers("combine", metrics.combine);
  if (metrics.expert_matmul) {
    const double seconds = metrics.expert_matmul->seconds;
    line["expert_matmul_share"] = number(Ratio{seconds, metrics.step_time_s}.value());
    line["expert_matmul_time_s"] = number(seconds);
    line["expert_matmul_efficiency"] = number(metrics.expert_matmul->efficiency().value());
    line["expert_matmul_tflops"] = number(metrics.expert_matmul->tflops().value());
    line["peak_tflops"] = number(metrics.expert_matmul->peak_tflops);
  }
}

// Where the line that ends at `end` (its line end, if any, included) begins.
int64_t line_start(const AppendFile& file, int64_t end) {
  constexpr int64_t kBlock = int64_t{1} << 16;
  int64_t block_end = end - 1;  // the line's own end does not count
  while (block_end > 0) {
    const int64_t block_begin = std::max<int64_t>(0, block_end - kBlock);
    const std::string block = file.read(block_begin, block_end);
    const size_t found = block.rfind('\n');
    if (found != std::string::npos) {
      return block_begin + static_cast<int64_t>(found) + 1;
    }
    block_end = block_begin;
  }
  return 0;
}

bool is_whole_line_up_to(const std::string& line, int64_t last_step) {
  if (line.back() != '\n') {
    return false;
  }
  const Json parsed = Json::parse(line, nullptr, /*allow_exceptions=*/false);
  return parsed.is_object() && parsed.contains("step") && parsed["step"].is_number_integer() &&
         parsed["step"].get<int64_t>() <= last_step;
}

}  // namespace

std::optional<double> Ratio::value() const {
  return denominator == 0 ? std::nullopt : std::optional(numerator / denominator);
}

ExpertLoad ExpertLoad::from_counts(int64_t layer, const std::vector<int64_t>& copies_per_expert) {
  ExpertLoad load;
  load.layer = layer;
  load.num_experts = static_cast<int64_t>(copies_per_expert.size());
  for (const int64_t copies : copies_per_expert) {
    load.copies += copies;
    load.busiest = std::max(load.busiest, copies);
    load.idle += copies == 0 ? 1 : 0;
  }
  return load;
}

Ratio ExpertLoad::max_over_mean() const {
  return {static_cast<double>(busiest * num_experts), static_cast<double>(copies)};
}

Ratio ExpertLoad::idle_share() const {
  return {static_cast<double>(idle), copies == 0 ? 0.0 : static_cast<double>(num_experts)};
}

std::string to_json(const StepMetrics& metrics) {
  Json line;
  line["step"] = metrics.step;
  put_loss(line, "loss", metrics.loss);
  line["aux"] = Json::object();
  for (const auto& [name, value] : metrics.auxiliary) {
    line["aux"][name] = number(value);
  }
  line["lr"] = number(metrics.lr);
  line["grad_norm"] = number(metrics.grad_norm);
  line["skipped"] = metrics.skipped;
  line["skipped_steps"] = metrics.skipped_steps;
  line["tokens"] = metrics.tokens;
  line["expert_load"] = Json::array();
  for (const ExpertLoad& load : metrics.expert_load) {
    line["expert_load"].push_back(load_json(load));
  }
  if (metrics.dropped) {
    line["dropped_share"] = number(metrics.dropped->value());
    line["dropped_copies"] = static_cast<int64_t>(metrics.dropped->numerator);
    line["routed_copies"] = static_cast<int64_t>(metrics.dropped->denominator);
  }
  if (metrics.eval_loss) {
    put_loss(line, "eval_loss", *metrics.eval_loss);
  }
  put_times(line, metrics);
  return line.dump();
}

std::vector<std::pair<std::string, double>> to_scalars(const StepMetrics& metrics) {
  std::vector<std::pair<std::string, double>> scalars;
  const auto put = [&](const std::string& tag, std::optional<double> value) {
    if (value) {
      scalars.emplace_back(tag, *value);
    }
  };
  const auto put_ratio = [&](const std::string& tag, const std::optional<Ratio>& ratio) {
    put(tag, ratio ? ratio->value() : std::nullopt);
  };
  put_ratio("loss", metrics.loss);
  put_ratio("eval_loss", metrics.eval_loss);
  for (const auto& [name, value] : metrics.auxiliary) {
    put("aux/" + name, value);
  }
  put("lr", metrics.lr);
  put("grad_norm", metrics.grad_norm);
  put("skipped_steps", static_cast<double>(metrics.skipped_steps));
  for (const ExpertLoad& load : metrics.expert_load) {
    const std::string layer = fmt::format("layer_{}", load.layer);
    put_ratio("experts/max_over_mean/" + layer, load.max_over_mean());
    put_ratio("experts/idle_share/" + layer, load.idle_share());
  }
  put_ratio("experts/dropped_share", metrics.dropped);
  put("speed/step_time_s", metrics.step_time_s);
  put_ratio("speed/tokens_per_s", tokens_per_second(metrics));
  put_ratio("speed/tflops_per_rank", teraflops_per_second(metrics));
  const auto put_transfers = [&](const std::string& tag, const std::optional<TransferTime>& time) {
    if (time) {
      put_ratio(tag + "_share", Ratio{time->waited_s, metrics.step_time_s});
      put_ratio(tag + "_hidden_share", time->hidden_share());
    }
  };
  put_transfers("speed/dispatch", metrics.dispatch);
  put_transfers("speed/combine", metrics.combine);
  if (metrics.expert_matmul) {
    put_ratio("speed/expert_matmul_share",
              Ratio{metrics.expert_matmul->seconds, metrics.step_time_s});
    put_ratio("speed/expert_matmul_efficiency", metrics.expert_matmul->efficiency());
  }
  return scalars;
}

MetricsFile::MetricsFile(const std::string& path, int64_t resume_step)
    : file_(path, AppendFile::Mode::kOpenOrCreate) {
  int64_t keep = file_.size();
  while (keep > 0) {
    const int64_t start = line_start(file_, keep);
    if (is_whole_line_up_to(file_.read(start, keep), resume_step)) {
      break;
    }
    keep = start;
  }
  if (keep < file_.size()) {
    file_.truncate(keep);
  }
}

void MetricsFile::write(const StepMetrics& metrics) {
  file_.append(to_json(metrics) + '\n');
}

}  // namespace switchyard
