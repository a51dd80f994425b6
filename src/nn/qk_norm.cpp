#include "nn/qk_norm.h"

#include <ATen/ATen.h>

#include "nn/norm.h"

namespace switchyard {
namespace {

at::Tensor declare_weight(const Scope& scope, const Config& config, const std::string& name,
                          int64_t num_heads, HeadsHere heads_here) {
  const int64_t head_dim = config.model.head_size();
  ParameterSpec spec;
  spec.name = scope.name(name);
  spec.init = norm_init(config.model);
  spec.has_weight_decay = false;
  switch (config.attention.qk_norm) {
    case QkNormKind::kNone:
      return {};
    case QkNormKind::kHead:
      // Each rank uses it for its own heads: the gradient is the sum over them.
      spec.shape = {head_dim};
      spec.tensor = Placement::replicated();
      return scope.parameters.declare({spec}, {head_dim});
    case QkNormKind::kFull:
      spec.shape = {num_heads, head_dim};
      if (heads_here == HeadsHere::kAll) {
        spec.tensor = Placement::replicated();
        return scope.parameters.declare({spec}, {num_heads * head_dim});
      }
      spec.tensor = Placement::sharded(0, num_heads);
      return scope.parameters.declare({spec},
                                      {num_heads / scope.groups().tensor().size() * head_dim});
  }
  return {};
}

}  // namespace

QkNorm::QkNorm(const Scope& scope, const Config& config, const std::string& name, int64_t num_heads,
               HeadsHere heads_here, const Site& site)
    : tensor_group_(scope.groups().tensor()),
      site_(site),
      kind_(config.attention.qk_norm),
      heads_here_(heads_here),
      num_features_(num_heads * config.model.head_size()),
      epsilon_(config.model.norm_epsilon),
      weight_kind_(norm_weight(config.model)),
      weight_(declare_weight(scope, config, name, num_heads, heads_here)) {}

at::Tensor QkNorm::forward(const at::Tensor& heads) const {
  switch (kind_) {
    case QkNormKind::kNone:
      return heads;
    case QkNormKind::kHead:
      return rms_norm(heads, weight_, epsilon_, weight_kind_);
    case QkNormKind::kFull:
      return over_all_heads(heads.flatten(1)).view(heads.sizes());
  }
  return heads;
}

// features [tokens, heads/tp * head_dim]
at::Tensor QkNorm::over_all_heads(const at::Tensor& features) const {
  if (tensor_group_.size() == 1 || heads_here_ == HeadsHere::kAll) {
    return rms_norm(features, weight_, epsilon_, weight_kind_);
  }
  const auto type = features.scalar_type() == at::kDouble ? at::kDouble : at::kFloat;
  const at::Tensor wide = features.to(type);
  const Placed squares{wide.square().sum(1, /*keepdim=*/true),
                       Placement::partial()};  // [tokens, 1]
  // Every rank goes on with the whole sum for its own heads: its gradient is summed over them.
  const Placed sum = convert(squares, Placement::invariant(), tensor_group_, site_);
  const at::Tensor mean =
      convert(sum, Placement::replicated(), tensor_group_, site_).tensor / num_features_;
  const at::Tensor unit = wide * (mean + epsilon_).rsqrt();
  if (weight_kind_ == NormWeight::kPlusOne) {
    return (unit * (1 + weight_.to(type))).to(features.scalar_type());
  }
  return unit.to(features.scalar_type()) * weight_;
}

}  // namespace switchyard
