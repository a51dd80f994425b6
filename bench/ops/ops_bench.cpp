// Times the operators of a Mixture-of-Experts layer against what libtorch offers for the same work,
// in the same run. Every figure is the best of runs in turn: what the code can do, with little from
// whatever else the machine does. Usage: ops_bench [threads]

#include <cstdlib>
#include <functional>
#include <string>
#include <vector>

#include <fmt/format.h>

#include <ATen/ATen.h>
#include <ATen/Parallel.h>
#include <torch/csrc/autograd/autograd.h>

#include "bench/ops/compare.h"
#include "ops/activation.h"
#include "ops/cpu/kernels.h"
#include "ops/dense_linear.h"
#include "ops/expert_mlp.h"
#include "ops/grouped_linear.h"
#include "ops/permute.h"
#include "ops/route.h"
#include "ops/top_k.h"

namespace switchyard {
namespace {

struct Layer {
  std::string name;
  int64_t tokens;
  int64_t hidden;
  int64_t num_experts;
  int64_t top_k;
  int64_t ffn;
};

class LayerBench {
 public:
  LayerBench(const Layer& layer, at::ScalarType type) : layer_(layer), type_(type) {
    expert_ids_ = top_k_ids(at::randn({layer.tokens, layer.num_experts}), layer.top_k);
    order_ = expert_order(expert_ids_, layer.num_experts);
    copies_ = layer.tokens * layer.top_k;
    int64_t end = 0;
    std::vector<int64_t> ends;
    for (const int64_t rows : order_.rows_per_expert) {
      ends.push_back(end += rows);
    }
    ends_ = at::tensor(ends, at::kInt);
  }

  void run() {
    fmt::print("{}, {}: {} tokens, hidden {}, {} experts, top {}, ffn {}\n", layer_.name,
               c10::toString(type_), layer_.tokens, layer_.hidden, layer_.num_experts, layer_.top_k,
               layer_.ffn);
    linear("gate_up", layer_.hidden, 2 * layer_.ffn);
    linear("down", layer_.ffn, layer_.hidden);
    swiglu();
    mlp();
    move_rows();
    choose();
    route_tokens();
  }

 private:
  at::Tensor random(std::vector<int64_t> sizes) const { return at::randn(sizes).to(type_); }

  void linear(const std::string& name, int64_t in, int64_t out) {
    const at::Tensor rows = random({copies_, in});
    const at::Tensor weight = random({layer_.num_experts, out, in});
    const at::Tensor grad = random({copies_, out});
    const double flops = 2.0 * static_cast<double>(copies_ * in * out);

    compare(name + " forward", flops, "GF/s",
            {{"ours", [&] { grouped_linear(rows, weight, order_.rows_per_expert); }},
             {"_grouped_mm", [&] { at::_grouped_mm(rows, weight.transpose(1, 2), ends_); }},
             {"loop of mm",
              [&] {
                at::Tensor result = at::empty({copies_, out}, rows.options());
                for_each_expert([&](int64_t expert, int64_t begin, int64_t end) {
                  at::Tensor part = result.slice(0, begin, end);
                  at::mm_out(part, rows.slice(0, begin, end), weight[expert].t());
                });
              }},
             {"dense mm", [&] { at::mm(rows, weight[0].t()); }}});

    const at::Tensor leaf_rows = rows.detach().requires_grad_();
    const at::Tensor leaf_weight = weight.detach().requires_grad_();
    const at::Tensor result = grouped_linear(leaf_rows, leaf_weight, order_.rows_per_expert);
    const auto backward = [&](const at::Tensor& of) {
      torch::autograd::grad({result}, {of}, {grad}, /*retain_graph=*/true);
    };
    compare(name + " backward, rows", flops, "GF/s",
            {{"ours", [&] { backward(leaf_rows); }},
             {"_grouped_mm", [&] { at::_grouped_mm(grad, weight, ends_); }},
             {"dense mm", [&] { at::mm(grad, weight[0]); }}});
    compare(name + " dense, linear", flops, "GF/s",
            {{"ours", [&] { dense_linear(rows, weight[0]); }},
             {"at::linear", [&] { at::linear(rows, weight[0]); }}});
    compare(name + " backward, weight", flops, "GF/s",
            {{"ours", [&] { backward(leaf_weight); }},
             {"_grouped_mm", [&] { at::_grouped_mm(grad.t(), rows, ends_); }},
             {"loop of mm",
              [&] {
                at::Tensor sums = at::zeros_like(weight);
                for_each_expert([&](int64_t expert, int64_t begin, int64_t end) {
                  at::Tensor part = sums[expert];
                  at::mm_out(part, grad.slice(0, begin, end).t(), rows.slice(0, begin, end));
                });
              }},
             {"dense mm", [&] { at::mm(grad.t(), rows); }}});
  }

  void swiglu() {
    const at::Tensor gate_up = random({copies_, 2 * layer_.ffn}).requires_grad_();
    const at::Tensor weights = at::rand({copies_}).requires_grad_();
    const at::Tensor grad = random({copies_, layer_.ffn});
    const auto composed = [&] {
      const auto halves = gate_up.chunk(2, 1);
      return (at::silu(halves[0]) * halves[1] * weights.unsqueeze(1)).to(type_);
    };
    const double bytes = static_cast<double>(gate_up.nbytes());
    compare("swiglu forward", 1.5 * bytes, "GB/s",
            {{"ours", [&] { weighted_activation(gate_up, weights); }}, {"composed", composed}});
    const auto backward = [&](const at::Tensor& result) {
      torch::autograd::grad({result}, {gate_up, weights}, {grad}, /*retain_graph=*/true);
    };
    const at::Tensor ours = weighted_activation(gate_up, weights);
    const at::Tensor theirs = composed();
    compare("swiglu backward", 2.5 * bytes, "GB/s",
            {{"ours", [&] { backward(ours); }}, {"composed", [&] { backward(theirs); }}});
  }

  // Softmax over all experts, the best of it, renormalised, with the scores of the balance loss.
  void route_tokens() {
    const at::Tensor logits = at::randn({layer_.tokens, layer_.num_experts}).requires_grad_();
    const at::Tensor grad_weights = at::randn({layer_.tokens, layer_.top_k});
    const at::Tensor grad_scores = at::randn({layer_.tokens, layer_.num_experts});
    const auto fused = [&] {
      const Routes routes =
          route(logits, {}, {},
                {.top_k = layer_.top_k, .softmax_over_chosen = false, .renormalize = true}, true);
      return std::vector{routes.weights, routes.probabilities};
    };
    const auto composed = [&] {
      const at::Tensor scores = at::softmax(logits, -1);
      const at::Tensor ids = top_k_ids(logits.detach(), layer_.top_k);
      const at::Tensor weights = scores.gather(-1, ids);
      return std::vector{weights / (weights.sum(-1, true) + 1e-20), scores};
    };
    const auto tokens = static_cast<double>(layer_.tokens);
    compare("route forward", tokens, "G tokens/s", {{"ours", fused}, {"composed", composed}});
    const auto backward = [&](const std::vector<at::Tensor>& results) {
      torch::autograd::grad(results, {logits}, {grad_weights, grad_scores}, /*retain_graph=*/true);
    };
    const auto ours = fused();
    const auto theirs = composed();
    compare("route backward", tokens, "G tokens/s",
            {{"ours", [&] { backward(ours); }}, {"composed", [&] { backward(theirs); }}});
  }

  void mlp() {
    const at::Tensor rows = random({copies_, layer_.hidden}).requires_grad_();
    const at::Tensor gate_up_weight =
        random({layer_.num_experts, 2 * layer_.ffn, layer_.hidden}).requires_grad_();
    const at::Tensor down_weight =
        random({layer_.num_experts, layer_.hidden, layer_.ffn}).requires_grad_();
    const at::Tensor weights = at::rand({copies_}).requires_grad_();
    const at::Tensor grad = random({copies_, layer_.hidden});
    const double flops = 6.0 * static_cast<double>(copies_ * layer_.hidden * layer_.ffn);
    const auto fused = [&] {
      return expert_mlp(rows, gate_up_weight, down_weight, weights, order_.rows_per_expert);
    };
    const auto parts = [&] {
      const at::Tensor gate_up = grouped_linear(rows, gate_up_weight, order_.rows_per_expert);
      return grouped_linear(weighted_activation(gate_up, weights), down_weight,
                            order_.rows_per_expert);
    };
    const auto theirs = [&] {
      const auto gate_up = at::_grouped_mm(rows, gate_up_weight.transpose(1, 2), ends_).chunk(2, 1);
      return at::_grouped_mm((at::silu(gate_up[0]) * gate_up[1] * weights.unsqueeze(1)).to(type_),
                             down_weight.transpose(1, 2), ends_);
    };
    compare("expert_mlp forward", flops, "GF/s",
            {{"ours", fused}, {"in parts", parts}, {"_grouped_mm", theirs}});
    const auto step = [&](const std::function<at::Tensor()>& forward) {
      torch::autograd::grad({forward()}, {rows, gate_up_weight, down_weight, weights}, {grad});
    };
    compare("expert_mlp forward and backward", 3 * flops, "GF/s",
            {{"ours", [&] { step(fused); }},
             {"in parts", [&] { step(parts); }},
             {"_grouped_mm", [&] { step(theirs); }}});
  }

  void move_rows() {
    const at::Tensor tokens = random({layer_.tokens, layer_.hidden});
    const at::Tensor rows = random({copies_, layer_.hidden});
    const at::Tensor flat = order_.row_of_copy.flatten();
    const double bytes = static_cast<double>(rows.nbytes());
    compare("permute", 2 * bytes, "GB/s",
            {{"ours", [&] { permute(tokens, order_); }},
             {"index_select", [&] { tokens.index_select(0, order_.token_of_row); }}});
    compare(
        "combine", bytes + static_cast<double>(tokens.nbytes()), "GB/s",
        {{"ours", [&] { combine(rows, order_); }},
         {"index_select, sum",
          [&] {
            rows.index_select(0, flat).view({layer_.tokens, layer_.top_k, layer_.hidden}).sum(1);
          }},
         {"index_add", [&] { at::zeros_like(tokens).index_add_(0, order_.token_of_row, rows); }}});
  }

  void choose() {
    const at::Tensor scores = at::randn({layer_.tokens, layer_.num_experts});
    const double tokens = static_cast<double>(layer_.tokens);
    compare("top_k_ids", tokens, "G tokens/s",
            {{"ours", [&] { top_k_ids(scores, layer_.top_k); }},
             {"topk", [&] { scores.topk(layer_.top_k); }},
             {"stable sort", [&] { scores.sort(true, 1, true); }}});
    compare("expert_order", tokens, "G tokens/s",
            {{"ours", [&] { expert_order(expert_ids_, layer_.num_experts); }},
             {"stable sort", [&] { expert_ids_.flatten().sort(true, 0, false); }}});
  }

  template <class Work>
  void for_each_expert(Work work) const {
    int64_t begin = 0;
    for (int64_t expert = 0; expert < layer_.num_experts; ++expert) {
      const int64_t end = begin + order_.rows_per_expert[static_cast<size_t>(expert)];
      work(expert, begin, end);
      begin = end;
    }
  }

  Layer layer_;
  at::ScalarType type_;
  int64_t copies_ = 0;
  at::Tensor expert_ids_;
  ExpertOrder order_;
  at::Tensor ends_;
};

int run(int argc, char** argv) {
  if (argc > 1) {
    at::set_num_threads(std::atoi(argv[1]));
  }
  fmt::print("kernels {}, {} threads; others as multiples of our time\n", cpu_kernels().name,
             at::get_num_threads());
  const std::vector<Layer> layers = {{"tiny", 4096, 128, 8, 2, 256},
                                     {"peer", 2048, 512, 32, 4, 256}};
  for (const Layer& layer : layers) {
    for (const auto type : {at::kFloat, at::kBFloat16}) {
      LayerBench(layer, type).run();
    }
  }
  return 0;
}

}  // namespace
}  // namespace switchyard

int main(int argc, char** argv) {
  return switchyard::run(argc, argv);
}
